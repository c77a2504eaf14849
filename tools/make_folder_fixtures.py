"""Writes tests/fixtures/folders: tiny random models as transformers saves them, and their logits.

NAME/config.json and NAME/model.safetensors (F32, no tokenizer), one folder for each way in which Hugging Face folders of the
families differ, and NAME/logits.f32: the logits of all positions of one prompt, computed in float64 from the same weights.

Needs torch and transformers (tested with 2.9 and 5.22), on the CPU. The result depends only on the seeds below.
"""

import argparse
import json
import pathlib

import safetensors.torch  # noqa: F401  it must know float32 as such
import torch

FLOAT32 = torch.float32  # the next import makes float64 of it

import make_family_fixtures as families  # noqa: E402
import transformers  # noqa: E402
from make_family_fixtures import CONTEXT, VOCAB_SIZE, WIDTH, random_weights  # noqa: E402

PROMPT_TOKENS = 60
COMMON = {"vocab_size": VOCAB_SIZE, "hidden_size": WIDTH, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-6}
EAGER = {"attn_implementation": "eager", "experts_implementation": "eager"}


def make(name, config, seed):
    """A model of the class of this name, with weights that are float32 numbers."""
    model = getattr(transformers, name)._from_config(config, **EAGER)
    random_weights(model, seed)
    model.tie_weights()
    return model


def lfm2(seed):
    """The size of the MLP is not the stated one."""
    config = transformers.Lfm2Config(
        **COMMON, norm_eps=1e-6, intermediate_size=66, block_auto_adjust_ff_dim=True, block_ffn_dim_multiplier=1.0,
        block_multiple_of=16, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, conv_L_cache=3,
        conv_bias=False, layer_types=["conv", "full_attention", "conv"], tie_word_embeddings=True)
    return make("Lfm2ForCausalLM", config, seed)


def lfm2_moe(seed):
    config = transformers.Lfm2MoeConfig(
        **COMMON, norm_eps=1e-6, intermediate_size=48, moe_intermediate_size=20, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, conv_L_cache=4, conv_bias=False, num_experts=5,
        num_experts_per_tok=2, num_dense_layers=1, norm_topk_prob=True, use_expert_bias=True, routed_scaling_factor=1.0,
        layer_types=["conv", "full_attention", "conv"], tie_word_embeddings=True)
    return make("Lfm2MoeForCausalLM", config, seed)


def glm4_moe(seed):
    config = transformers.Glm4MoeConfig(
        **COMMON, intermediate_size=48, moe_intermediate_size=20, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, n_group=1,
        topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.5, first_k_dense_replace=1, use_qk_norm=True,
        attention_bias=True, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5})
    return make("Glm4MoeForCausalLM", config, seed)


def glm4_moe_lite(seed):
    config = transformers.Glm4MoeLiteConfig(
        **COMMON, intermediate_size=48, moe_intermediate_size=20, num_hidden_layers=3, num_attention_heads=3,
        num_key_value_heads=3, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, n_group=1, topk_group=1,
        norm_topk_prob=True, routed_scaling_factor=1.8, mlp_layer_types=["dense", "sparse", "sparse"], q_lora_rank=20,
        kv_lora_rank=24, qk_rope_head_dim=8, qk_nope_head_dim=12, v_head_dim=10, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    config.first_k_dense_replace = 1
    return make("Glm4MoeLiteForCausalLM", config, seed)


def qwen3_5_moe(seed):
    """Linear heads of 16. Of 8, more outputs of the delta rule nearly vanish (1 % of their median), and the norm after it
    enlarges their rounding errors: float32 is 4e-4 of the logits' deviation off there, transformers' own too."""
    config = transformers.Qwen3_5MoeTextConfig(
        **COMMON, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_experts=6,
        num_experts_per_tok=2, moe_intermediate_size=20, shared_expert_intermediate_size=24, linear_conv_kernel_dim=4,
        linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4,
        layer_types=["linear_attention", "linear_attention", "linear_attention", "full_attention"],
        tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
                         "mrope_section": [2, 1, 1], "mrope_interleaved": True})
    return make("Qwen3_5MoeForCausalLM", config, seed)


def granite(seed, kinds, experts):
    config = transformers.GraniteMoeHybridConfig(
        **COMMON, intermediate_size=24, shared_intermediate_size=40, num_hidden_layers=len(kinds), layer_types=kinds,
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=experts, num_experts_per_tok=2 if experts else 0,
        mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=1, mamba_d_state=12, mamba_d_conv=4, mamba_expand=2,
        mamba_chunk_size=16, tie_word_embeddings=True, embedding_multiplier=5.0, attention_multiplier=0.3,
        residual_multiplier=0.4, logits_scaling=0.5,
        position_embedding_type="nope" if "linear_attention" in kinds else "rope")
    return make("GraniteMoeHybridForCausalLM", config, seed)


def nemotron_moe(seed):
    kinds = ["linear_attention", "moe", "full_attention", "moe"]
    config = transformers.NemotronHConfig(
        vocab_size=VOCAB_SIZE, hidden_size=WIDTH, intermediate_size=40, layers_block_type=kinds, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, mamba_num_heads=4, mamba_head_dim=12, n_groups=2, ssm_state_size=10,
        conv_kernel=4, expand=1, chunk_size=16, time_step_min=1e-9, max_position_embeddings=CONTEXT,
        layer_norm_epsilon=1e-6, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=20,
        moe_shared_expert_intermediate_size=28, n_shared_experts=1, n_group=1, topk_group=1, norm_topk_prob=True,
        routed_scaling_factor=2.5, tie_word_embeddings=False)
    return make("NemotronHForCausalLM", config, seed)


HYBRID = ["linear_attention", "full_attention", "linear_attention"]
FOLDERS = {
    "lfm2": lfm2,
    "lfm2_moe": lfm2_moe,
    "glm4_moe": glm4_moe,
    "glm4_moe_lite": glm4_moe_lite,
    "deepseek_v3": lambda seed: families.deepseek(seed, "deepseek_v3")[1],
    "qwen3_5_moe": qwen3_5_moe,
    "gemma4_e": lambda seed: families.gemma4(seed, "gemma4_e", False)[1],
    "gemma4_moe": lambda seed: families.gemma4(seed, "gemma4_moe", True)[1],
    "granite_hybrid": lambda seed: granite(seed, HYBRID, 0),
    "granite_moe": lambda seed: granite(seed, HYBRID, 5),
    "granite_attention": lambda seed: granite(seed, ["full_attention"] * 2, 0),
    "nemotron_h": lambda seed: families.nemotron(seed, "nemotron_h")[1],
    "nemotron_h_moe": nemotron_moe,
}


@torch.inference_mode()
def write(model, folder):
    ids = [(i * i * 31 + i * 17 + 5) % VOCAB_SIZE for i in range(PROMPT_TOKENS)]
    for tensor in model.state_dict().values():  # what the folder holds
        if tensor.is_floating_point():
            tensor.copy_(tensor.to(FLOAT32))
    logits = model(torch.tensor([ids]), use_cache=False).logits[0]
    folder.mkdir(parents=True, exist_ok=True)
    logits.numpy().astype("<f4").tofile(folder / "logits.f32")
    model.to(FLOAT32).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    config = json.loads((folder / "config.json").read_text())
    config["dtype"] = "float32"
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    return logits


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/folders"
    parser.add_argument("--out", type=pathlib.Path, default=default, help="folder to write to")
    parser.add_argument("names", nargs="*", help="some alone")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for seed, (name, build) in enumerate(FOLDERS.items(), start=90):
        if arguments.names and name not in arguments.names:
            continue
        logits = write(build(seed), arguments.out / name)
        print(f"{name}: logits' standard deviation {logits.std().item():.2f}", flush=True)


if __name__ == "__main__":
    main()
