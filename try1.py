import torch, copy, sys
from transformers import *
from peft import LoraConfig, get_peft_model
from trl.trainer.utils import add_fused_lm_head
from rlm_plugins.speed.layout import layouts, is_packable
from rlm_plugins.speed.packed import read
from rlm_plugins.speed.attention import install
V=67
def mk(kind):
    torch.manual_seed(0)
    common=dict(vocab_size=V,hidden_size=32,intermediate_size=64,num_hidden_layers=2,num_attention_heads=4,max_position_embeddings=128)
    if kind=="llama": return LlamaForCausalLM(LlamaConfig(**common,num_key_value_heads=4))
    if kind=="qwen2": return Qwen2ForCausalLM(Qwen2Config(**common,num_key_value_heads=2))
    if kind=="qwen3": return Qwen3ForCausalLM(Qwen3Config(**common,num_key_value_heads=2,head_dim=8))
    if kind=="gpt2": return GPT2LMHeadModel(GPT2Config(vocab_size=V,n_embd=32,n_layer=2,n_head=4,n_positions=128,resid_pdrop=0,embd_pdrop=0,attn_pdrop=0))
    if kind=="neox": return GPTNeoXForCausalLM(GPTNeoXConfig(**common))
    if kind=="phi3": return Phi3ForCausalLM(Phi3Config(**common,num_key_value_heads=2,pad_token_id=0,bos_token_id=1,eos_token_id=2))
    if kind=="gemma2": return Gemma2ForCausalLM(Gemma2Config(**common,num_key_value_heads=2,head_dim=8))
    if kind=="opt": return OPTForCausalLM(OPTConfig(vocab_size=V,hidden_size=32,ffn_dim=64,num_hidden_layers=2,num_attention_heads=4,max_position_embeddings=128,dropout=0,word_embed_proj_dim=32))
    if kind=="bloom": return BloomForCausalLM(BloomConfig(vocab_size=V,hidden_size=32,n_layer=2,n_head=4))
    if kind=="mistral": return MistralForCausalLM(MistralConfig(**common,num_key_value_heads=2))
    if kind=="olmo2": return Olmo2ForCausalLM(Olmo2Config(**common,num_key_value_heads=2))
    if kind=="granite": return GraniteForCausalLM(GraniteConfig(**common,num_key_value_heads=2,logits_scaling=2.0))
    if kind=="falcon": return FalconForCausalLM(FalconConfig(vocab_size=V,hidden_size=32,num_hidden_layers=2,num_attention_heads=4))
    if kind=="smollm3": return SmolLM3ForCausalLM(SmolLM3Config(**common,num_key_value_heads=2,pad_token_id=0))
torch.manual_seed(1)
P,C=6,9
rows=[]
prompts=[[5,6,7],[9,8,7,6,5,4],[3]]
import random; r=random.Random(0)
ids=[];th=[]
for g in range(3):
    for j in range(4):
        p=prompts[g]; n=[0,1,9,4][j] if g==0 else r.randint(1,9)
        c=[r.randint(3,V-1) for _ in range(n)]
        ids.append([0]*(P-len(p))+p+c+[0]*(C-n)); th.append([0]*(P-len(p))+[1]*(len(p)+n)+[0]*(C-n))
perm=torch.randperm(12)
ids=torch.tensor(ids)[perm];th=torch.tensor(th)[perm]
for kind in sys.argv[1:] or "llama qwen2 qwen3 gpt2 neox phi3 gemma2 opt bloom mistral olmo2 granite falcon smollm3".split():
  try:
    m=mk(kind); add_fused_lm_head(m,temperature=0.8,outputs=("log_probs","entropy"))
    targets="all-linear" 
    pm=get_peft_model(m,LoraConfig(r=4,target_modules=targets,task_type="CAUSAL_LM"))
    for n,p in pm.named_parameters():
        if "lora_B" in n: torch.nn.init.normal_(p,std=.05)
    pm.train()
    lab=ids.masked_fill(th==0,-100).clone(); lab[:,:-C]=-100
    out=pm(input_ids=ids,attention_mask=th,labels=lab,fused_lm_head=True)
    lp0,en0=out.log_probs[:,-C:],out.entropy[:,-C:]
    w=torch.randn(12,C)
    (lp0*w).sum().backward(); g0={n:p.grad.clone() for n,p in pm.named_parameters() if p.grad is not None}; pm.zero_grad()
    install(m)
    assert is_packable(th,C)
    (lay,)=layouts(ids,th,C)
    lp,en=read(pm,lay,temperature=0.8); lp,en=lay.padded(lp),lay.padded(en)
    (lp*w).sum().backward(); g1={n:p.grad.clone() for n,p in pm.named_parameters() if p.grad is not None}
    G0=torch.cat([g.flatten() for g in g0.values()]);G1=torch.cat([g1[n].flatten() for n in g0])
    print(kind,(lp-lp0).abs().max().item(),(en-en0).abs().max().item(),((G0-G1).norm()/G0.norm()).item(), set(g0)==set(g1))
  except Exception as e:
    import traceback; print(kind,"ERR",type(e).__name__,str(e)[:150])
