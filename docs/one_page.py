"""The whole loop on one page: sample, reward, advantage, ratio, loss, step. Plain PyTorch; no plugins, no TRL.

A small network learns to sort three letters (``cab>`` → ``abc.``). It is never trained on a sorted word: it samples,
and completions that score above the others of the same word become more likely. The algorithm is GRPO::

    J(θ) = E[ 1/G Σᵢ 1/nᵢ Σₜ ( min(wᵢₜ Âᵢ, clip(wᵢₜ, 1−ε, 1+ε) Âᵢ) − β kᵢₜ ) ]                  arXiv 2402.03300, eq. 3

    Âᵢ  = (rᵢ − mean r) / (std r + 10⁻⁴)   over the G completions of one word: above or below average
    wᵢₜ = π(yᵢₜ) / π_old(yᵢₜ)              importance ratio: current over sampling policy
    kᵢₜ = ρ − log ρ − 1,  ρ = π_ref / π    estimated KL to the initial policy (Schulman's k3)

Run it (a few seconds): ``python docs/one_page.py``. Then read `rlm_plugins/equation/step.py`: the same equation, every
symbol a hook. Shapes: P words with G completions each make B = P·G; a sequence has 4 prompt tokens and T = 4 completion
tokens.
"""

import copy
import random
from collections.abc import Iterator

import torch
from torch import Tensor

TOKENS = "abcd>."  # '>' ends the prompt, '.' ends the answer
PROMPT, COMPLETION = 4, 4  # tokens


class Policy(torch.nn.Module):
    """π(y | x): log-probabilities of the next token after every token, (B, L) → (B, L, 6)."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(len(TOKENS), width)
        self.memory = torch.nn.GRU(width, width, batch_first=True)
        self.head = torch.nn.Linear(width, len(TOKENS))

    def forward(self, ids: Tensor) -> Tensor:
        states, _ = self.memory(self.embedding(ids))
        return torch.log_softmax(self.head(states), -1)


@torch.no_grad()
def sample(policy: Policy, words: list[str]) -> tuple[Tensor, Tensor]:
    """y ~ π(· | x). Returns prompt and completion as ids (B, 8) and the mask m (B, T): tokens up to the first '.'."""
    ids = torch.tensor([list(map(TOKENS.index, word + ">")) for word in words])
    for _ in range(COMPLETION):
        ids = torch.cat([ids, policy(ids)[:, -1].exp().multinomial(1)], dim=1)
    end = (ids[:, PROMPT:] == TOKENS.index(".")).int()
    return ids, end.cumsum(1) - end == 0


def decode(ids: Tensor, mask: Tensor) -> list[str]:
    """Return the completions as text."""
    completions = []
    for tokens, length in zip(ids[:, PROMPT:].tolist(), mask.sum(1).tolist(), strict=True):
        completions.append("".join(TOKENS[token] for token in tokens[:length]))
    return completions


def reward(word: str, completion: str) -> float:
    """r: the share of letters at the right position; 1 for ``abc.`` after ``cab``."""
    target = "".join(sorted(word)) + "."
    return sum(a == b for a, b in zip(completion, target, strict=False)) / len(target)


def advantage(r: Tensor) -> Tensor:
    """Â (P, G) from r (P, G). A group whose rewards are all equal has no gradient: exactly 0."""
    spread = r.amax(1, keepdim=True) > r.amin(1, keepdim=True)
    return spread * (r - r.mean(1, keepdim=True)) / (r.std(1, keepdim=True) + 1e-4)


def log_prob(policy: Policy, ids: Tensor) -> Tensor:
    """log π(yₜ | x, y before t) of the completion tokens, (B, T)."""
    return policy(ids[:, :-1])[:, PROMPT - 1 :].gather(2, ids[:, PROMPT:, None]).squeeze(2)


def loss(logp: Tensor, old: Tensor, ref: Tensor, A: Tensor, mask: Tensor, epsilon: float, beta: float) -> Tensor:
    """−J(θ), a scalar. `logp`, `old`, `ref`: log π, log π_old, log π_ref (B, T); `A`: Â (B, 1)."""
    w = (logp - old).exp()  # wᵢₜ
    gain = torch.min(w * A, w.clamp(1 - epsilon, 1 + epsilon) * A)  # min(w Â, clip(w, 1−ε, 1+ε) Â)
    k = (ref - logp).exp() - (ref - logp) - 1  # kᵢₜ
    per_completion = ((gain - beta * k) * mask).sum(1) / mask.sum(1)  # 1/nᵢ Σₜ
    return -per_completion.mean()  # 1/G Σᵢ, and E[ ] over the words


def train(
    seed: int = 0, steps: int = 100, P: int = 16, G: int = 8, epsilon: float = 0.2, beta: float = 0.01
) -> Iterator[tuple[int, float, str]]:
    """Train, and yield after every step: its index, the mean reward of its B completions, and one of them."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    policy = Policy()  # π_θ
    reference = copy.deepcopy(policy)  # π_ref
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    for step in range(steps):
        prompts = ["".join(rng.choices("abcd", k=3)) for _ in range(P)]
        words = [word for word in prompts for _ in range(G)]  # x, each G times
        ids, mask = sample(policy, words)  # y ~ π_old
        completions = decode(ids, mask)
        r = torch.tensor([reward(x, y) for x, y in zip(words, completions, strict=True)])  # rᵢ
        A = advantage(r.view(P, G)).view(-1, 1)  # Âᵢ
        with torch.no_grad():
            old, ref = log_prob(policy, ids), log_prob(reference, ids)  # log π_old, log π_ref
        for _ in range(2):  # two updates per batch: in the second one w ≠ 1
            optimizer.zero_grad()
            loss(log_prob(policy, ids), old, ref, A, mask, epsilon, beta).backward()
            optimizer.step()  # θ ← θ + η ∇J
        yield step, r.mean().item(), f"{words[0]}>{completions[0]}"


if __name__ == "__main__":
    for step, mean_reward, example in train():
        if step % 10 == 9 or step == 0:
            print(f"step {step + 1:3}   mean reward {mean_reward:.2f} {'#' * round(30 * mean_reward):30}  {example}")
