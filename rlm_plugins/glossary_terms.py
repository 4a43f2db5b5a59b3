"""Terms of the field, as users of TRL, verl, OpenRLHF, ROLL, CleanRL and others spell them, and our names for them."""

from __future__ import annotations

_TABLE = """
# policy loss
clip_range cliprange clip_ratio clip_param clip_coef clip_eps eps_clip ppo_clip = policy_loss/clip.epsilon
clip_ratio_low eps_clip_low cliprange_low clip_low = policy_loss/clip.epsilon policy_loss/cispo.epsilon_low
clip_higher clip_high clip_ratio_high eps_clip_high cliprange_high decoupled_clip = policy_loss/clip.epsilon_high
    algorithm/dapo
eps_clip_low_high = policy_loss/clip.epsilon policy_loss/clip.epsilon_high
dual_clip clip_ratio_c eps_clip_dual dual_clip_c = policy_loss/clip.delta
surrogate surrogate_loss clipped_surrogate surrogate_objective ppo_loss pg_loss = policy_loss/clip
policy_gradient vanilla_policy_gradient vpg score_function = policy_loss/reinforce algorithm/reinforce
loss_type policy_loss_type = algorithm policy_loss aggregator
# penalties
kl_coef kl_loss_coef kl_coeff init_kl_coef kl_beta kl_weight = penalties.beta penalties/kl shapers/kl_in_reward.beta
kl_penalty kl_loss use_kl_loss kl_regularization kl_divergence = penalties/kl shapers/kl_in_reward
use_kl_in_reward kl_reward apply_kl_penalty = shapers/kl_in_reward
kl_estimator kl_loss_type kl_penalty_type kl_type k1 k2 k3 = penalties/kl.estimator
kl_controller adaptive_kl_controller kl_ctrl adap_kl_ctrl = penalties/adaptive_kl shapers/adaptive_kl_in_reward
kl_horizon = penalties/adaptive_kl.horizon shapers/adaptive_kl_in_reward.horizon
kl_target = penalties/adaptive_kl.target shapers/adaptive_kl_in_reward.target
max_kl kl_early_stopping early_stopping_kl kl_early_stop = trainer.target_kl
reference_model ref_model reference_policy ref_policy = penalties/kl batch:ref_logp
entropy_coef ent_coef entropy_coeff entropy_bonus entropy_loss_coef entropy_regularization = penalties.beta
    penalties/entropy
target_entropy entropy_target use_adaptive_entropy = penalties/adaptive_entropy.target
vf_coef value_coef value_loss_coef value_coeff vf_loss_coeff critic_coef = penalties.beta penalties/value_loss
cliprange_value clip_range_vf value_clip clip_vloss vf_clip_param vf_clip cliprange_critic =
    penalties/value_loss.epsilon
vf_loss critic_loss value_function_loss = penalties/value_loss
# critic and advantages
value_function value_model critic_model value_head value_network vf = critic batch:values penalties/value_loss
actor_critic = critic algorithm/ppo
critic_lr value_lr vf_lr critic_learning_rate = critic.learning_rate
critic_warmup critic_warmup_steps freezing_actor_steps value_pretraining = critic.warmup_steps
gae_lambda lambda lambd lambda_ gae_lam lmbda = advantage/gae.lam
discount discount_factor discount_rate = advantage/gae.gamma advantage/batch_whitened.gamma
generalized_advantage_estimation generalised_advantage_estimation td_error td_lambda = advantage/gae
advantage_estimator adv_estimator baseline = advantage
group_normalization group_advantage grpo_advantage relative_advantage = advantage/group_relative
whitening whiten_advantages normalize_advantages norm_adv adv_norm advantage_normalization = advantage/batch_whitened
    advantage/group_relative.scale
scale_rewards norm_adv_by_std_in_grpo std_normalization = advantage/group_relative.scale
loo rloo_baseline leave_one_out_baseline = advantage/leave_one_out algorithm/rloo
reward_to_go rewards_to_go monte_carlo_return discounted_return = batch:returns advantage/batch_whitened
# probabilities and off-policy correction
log_probs log_prob logprobs logprob logps per_token_logps action_log_probs = batch:logp
old_log_probs old_log_prob old_logprobs old_per_token_logps behavior_log_probs old_policy = batch:old_logp
    speed.reuse_old_logprobs
ref_log_probs ref_log_prob ref_logprobs ref_per_token_logps = batch:ref_logp
rollout_log_probs sampling_logprobs vllm_logprobs train_inference_mismatch = batch:rollout_logp
    metric:sampling/sampling_logp_difference/<mean|max>
importance_sampling importance_ratio importance_weight prob_ratio probability_ratio = importance batch:ratio
importance_sampling_level sequence_level_ratio token_level_ratio = importance/token importance/sequence
off_policy_correction off_policy rollout_correction rollout_is vllm_importance_sampling_correction =
    token_weights/truncated_importance token_weights/masked_importance batch:rollout_logp
tis truncated_importance_sampling tis_imp_ratio_cap rollout_is_threshold vllm_importance_sampling_cap =
    token_weights/truncated_importance.cap
mis icepop masked_importance_sampling off_policy_mask = token_weights/masked_importance
recompute_log_prob recompute_old_logprobs bypass_mode = speed.reuse_old_logprobs
# masks and aggregation
loss_mask response_mask action_mask completion_mask assistant_mask attention_mask = batch:mask
loss_agg_mode loss_aggregation loss_reduction normalization_constant = aggregator
token_level_loss token_mean_loss token_level = aggregator/token_mean
sequence_level_loss sample_level_loss seq_mean_token_mean = aggregator/sequence_mean
seq_mean_token_sum = aggregator/sequence_sum
seq_mean_token_sum_norm length_bias length_normalization = aggregator/fixed_length
mask_truncated_completions overlong_filtering overlong_filter = token_weights/mask_truncated filters/no_truncated_groups
overlong_buffer overlong_penalty overlong_reward_shaping soft_overlong_punishment = shapers/overlong
length_penalty length_reward = shapers/overlong rewards/length
top_entropy_quantile forking_tokens high_entropy_tokens = token_weights/top_entropy.share
# rewards
reward_function reward_func reward_funcs reward_fn compute_score rlvr verifiable_reward = rewards rewards/accuracy
verifier accuracy_reward correctness_reward rule_based_reward = rewards/accuracy
format_reward = rewards/format
reward_weights reward_weight reward_coef = rewards.weight
reward_shaping reward_transform = shapers
rm reward_model_path preference_model bradley_terry = rewards/reward_model algorithm/reward_model
dense_reward token_level_rewards process_reward prm step_reward = batch:token_rewards batch:turn_rewards
async_rewards async_reward reward_async = speed.prefetch_rewards rewards.processes
# sampling
dynamic_sampling dynamic_filtering filter_groups active_sampling oversampling resampling = filters.refill
    filters/nonzero_std metric:dynamic_sampling/rounds
zero_variance_filter zero_std_filter zero_variance degenerate_groups = filters/nonzero_std metric:frac_reward_zero_std
difficulty_filter accuracy_filter online_filtering = filters/accuracy_band
curriculum_learning prioritized_sampling prompt_sampling = sampler sampler/curriculum
replay_buffer experience_replay = rollouts/replay callbacks/keep_successes
expert_demonstrations offline_data off_policy_demonstrations = rollouts/demonstrations
tree_search tree_rollout branching tree_of_thoughts = rollouts/branches
rollout rollout_worker sampling experience = rollouts generator
inference_engine rollout_engine sglang decoding = generator
multi_turn agentic tool_use tool_calling agent_loop = environment batch:turn_rewards metric:episodes/turns
group_size n_samples_per_prompt samples_per_prompt rollout_n num_return_sequences n_samples = trainer.num_generations
max_response_length max_tokens response_length generate_max_len max_gen_len = trainer.max_completion_length
    evaluation.max_new_tokens
sampling_temperature = trainer.temperature
# optimization
ppo_epochs update_epochs num_ppo_epochs n_epochs noptepochs inner_epochs = trainer.num_iterations
mini_batch_size minibatch_size num_minibatches ppo_mini_batch_size num_mini_batches =
    trainer.gradient_accumulation_steps trainer.steps_per_generation
micro_batch_size micro_train_batch_size ppo_micro_batch_size_per_gpu = trainer.per_device_train_batch_size
    speed.max_tokens_per_micro_batch
train_batch_size rollout_batch_size batch_size_per_rollout = trainer.generation_batch_size
lr actor_lr actor_learning_rate policy_lr = trainer.learning_rate
grad_clip clip_grad gradient_clipping max_norm clip_grad_norm = trainer.max_grad_norm
total_epochs num_epochs epochs = trainer.num_train_epochs
total_steps total_training_steps total_timesteps num_episodes = trainer.max_steps
wandb tensorboard logger = trainer.report_to
# speed
packing sequence_packing packing_samples remove_padding use_remove_padding unpad varlen = speed.padding_free
prefix_sharing shared_prefix prefix_caching prefix_cache = speed.padding_free generator/fast
use_dynamic_bsz dynamic_batch_size ppo_max_token_len_per_gpu max_tokens_per_gpu token_budget =
    speed.max_tokens_per_micro_batch
fused_kernels fused_linear = speed.fused_lora
# model, data, evaluation
lora_config peft peft_config adapter qlora = model.lora critic.lora
lora_rank lora_r = lora.r
actor policy_model actor_model base_model = model batch:logp
model_name_or_path model_name pretrained_model_name_or_path pretrain model_path = model/pretrained.path model
torch_dtype precision = model/pretrained.dtype
quantization 4bit bitsandbytes = model/pretrained.load_in_4bit
dataset_name train_dataset train_files prompt_data data_path = environment/dataset.path
input_key prompt_key prompt_column = environment/dataset.prompt
system_prompt = environment/dataset.system
apply_chat_template chat_template = environment/dataset.chat
env task gym_env dataset_task = environment
eval_freq test_freq eval_interval eval_every = evaluation.every
early_stopping = callbacks/stop_at callbacks
# metrics
approx_kl ppo_kl policy_kl mean_kl = metric:penalties/<name> penalties/kl_old trainer.target_kl
clipfrac clip_frac clip_fraction pg_clipfrac = metric:policy_loss/clipped_<low|high>
vf_clipfrac value_clipfrac = metric:penalties/value_clipped
explained_var explained_variance ev = metric:critic/explained_variance
mean_reward reward_mean episode_reward = metric:reward
episodic_return episode_return_mean = metric:episodes/return rewards/episode_return
completion_length mean_length mean_response_length = metric:completions/<mean|min|max>_length
val_score test_score validation_accuracy val_acc eval_reward = metric:held_out/<label> evaluation
pass@k = advantage/pass_at_k algorithm/pass_at_k
"""
"""One entry per line, an indented line continues it: spellings of a term = our names, the most likely first.

A name is spelled as :func:`rlm_plugins.glossary.describe` takes it: ``policy_loss/clip.epsilon`` (knob of a part),
``policy_loss/clip`` (part), ``speed.padding_free`` (recipe key), ``batch:mask`` (batch field), ``metric:reward``
(metric), ``advantage`` (hook).
"""

_LINES = [line for line in _TABLE.replace("\n    ", " ").splitlines() if line and not line.startswith("#")]
ENTRIES: list[tuple[list[str], list[str]]] = [
    (spellings.split(), names.split()) for spellings, _, names in (line.partition(" = ") for line in _LINES)
]
"""Spellings of a term and our names for it."""
