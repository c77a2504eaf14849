"""Writes tests/fixtures/families: tiny random models of families whose layers differ, and their logits by transformers.

As make_fixture_models.py does, for families that only transformers 5 has: NAME.gguf (F32, no tokenizer), NAME.bin (the
logits of all positions of one prompt, computed in float64) and manifest.json. The prompt is longer than a page of the
cache and every window.

Needs torch and transformers (tested with 2.9 and 5.22), on the CPU. The result depends only on the seeds below.
"""

import argparse
import pathlib
import unittest.mock

import numpy as np
import torch

import transformers_float64  # noqa: F401  before transformers
from fixture_json import write_json
from gguf_file import F32, GgufFile
from transformers import (DeepseekV3Config, DeepseekV3ForCausalLM, Gemma4ForCausalLM, Gemma4TextConfig, GptOssConfig,
                          GptOssForCausalLM, GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM, NemotronHConfig,
                          NemotronHForCausalLM, Qwen3_5ForCausalLM, Qwen3_5TextConfig, Qwen3MoeConfig,
                          Qwen3MoeForCausalLM)

VOCAB_SIZE = 96
CONTEXT = 256
PROMPT_TOKENS = 140
GREEDY_TOKENS = 16
WIDTH = 32

GEMMA4 = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
          "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
          "attn_k_norm": "self_attn.k_norm", "post_attention_norm": "post_attention_layernorm",
          "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
          "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
          "inp_gate": "per_layer_input_gate", "proj": "per_layer_projection", "post_norm": "post_per_layer_input_norm",
          "post_ffw_norm_1": "post_feedforward_layernorm_1", "post_ffw_norm_2": "post_feedforward_layernorm_2",
          "pre_ffw_norm_2": "pre_feedforward_layernorm_2", "ffn_gate_inp": "router.proj"}
LLAMA = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_output": "self_attn.o_proj"}
ATTENTION = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}


def random_weights(model, seed):
    """Large enough that attention and logits are far from uniform; each is a float32."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in list(model.named_parameters()) + list(model.named_buffers()):
            if "inv_freq" in name or "embed_scale" in name:
                continue
            noise = torch.randn(tensor.shape, generator=generator)
            if "norm" in name or name.endswith((".scale", "per_expert_scale", "layer_scalar", ".D")):
                values = 1 + 0.2 * noise
            elif name.endswith("A_log"):
                values = -1 + noise
            elif name.endswith(("bias",)):
                values = 0.5 * noise
            elif "embed" in name:
                values = 0.15 * noise
            else:
                values = 0.25 * noise
            tensor.copy_(torch.from_numpy(values.numpy().astype("f4").astype("f8")))
    return model.eval()


class Writer:
    """A GGUF file of a model: tensors are taken from its state by transformers' names."""

    def __init__(self, name, architecture, model):
        self.gguf = GgufFile()
        self.architecture = architecture
        self.config = model.config
        self.state = {key: value.detach().numpy() for key, value in model.state_dict().items()}
        self.gguf.string("general.architecture", architecture)
        self.gguf.string("general.name", f"inferno test fixture {name}")
        self.gguf.string("general.license", "CC0-1.0")
        self.gguf.u32("general.file_type", 0)

    def key(self, suffix, value):
        name = f"{self.architecture}.{suffix}"
        if isinstance(value, bool):
            self.gguf.boolean(name, value)
        elif isinstance(value, str):
            self.gguf.string(name, value)
        elif isinstance(value, list):
            (self.gguf.booleans if isinstance(value[0], bool) else self.gguf.i32s)(name, value)
        else:
            (self.gguf.u32 if isinstance(value, int) else self.gguf.f32)(name, value)

    def keys(self, **values):
        for suffix, value in values.items():
            self.key(suffix.replace("__", "."), value)

    def common(self, heads, kv_heads, ffn):
        self.keys(block_count=self.config.num_hidden_layers, context_length=CONTEXT, embedding_length=WIDTH,
                  feed_forward_length=ffn, attention__head_count=heads, attention__head_count_kv=kv_heads,
                  attention__layer_norm_rms_epsilon=1e-6)

    def tensor(self, name, array):
        self.gguf.tensor(name, array.shape, F32, np.ascontiguousarray(array, dtype="<f4").tobytes())

    def part(self, layer, name):
        return self.state.get(f"model.layers.{layer}.{name}")

    def layer(self, layer, names):
        for ours, theirs in names.items():
            for kind in ("weight", "bias"):
                array = self.part(layer, f"{theirs}.{kind}")
                if array is not None:
                    self.tensor(f"blk.{layer}.{ours}.{kind}", array)

    def split(self, layer, theirs, names):
        """Equal parts of the rows, or of the middle dimension of several matrices."""
        array = self.part(layer, theirs)
        for name, rows in zip(names, np.split(array, len(names), axis=array.ndim - 2)):
            self.tensor(f"blk.{layer}.{name}.weight", rows)

    def experts(self, layer, prefix):
        self.split(layer, f"{prefix}.gate_up_proj", ["ffn_gate_exps", "ffn_up_exps"])
        self.tensor(f"blk.{layer}.ffn_down_exps.weight", self.part(layer, f"{prefix}.down_proj"))

    def mamba(self, layer, prefix, groups):
        self.layer(layer, {"ssm_in": f"{prefix}.in_proj", "ssm_out": f"{prefix}.out_proj"})
        self.tensor(f"blk.{layer}.ssm_conv1d.weight", self.part(layer, f"{prefix}.conv1d.weight")[:, 0])
        self.tensor(f"blk.{layer}.ssm_conv1d.bias", self.part(layer, f"{prefix}.conv1d.bias"))
        self.tensor(f"blk.{layer}.ssm_dt.bias", self.part(layer, f"{prefix}.dt_bias"))
        self.tensor(f"blk.{layer}.ssm_a", -np.exp(self.part(layer, f"{prefix}.A_log"))[:, None])
        self.tensor(f"blk.{layer}.ssm_d", self.part(layer, f"{prefix}.D")[:, None])
        self.tensor(f"blk.{layer}.ssm_norm.weight", self.part(layer, f"{prefix}.norm.weight").reshape(groups, -1))

    def ends(self, embedding="model.embed_tokens.weight", norm="model.norm.weight"):
        self.tensor("token_embd.weight", self.state[embedding])
        self.tensor("output_norm.weight", self.state[norm])
        if not self.config.tie_word_embeddings:
            self.tensor("output.weight", self.state["lm_head.weight"])


def exact_decays(model):
    """Files hold -exp(A_log) as float32: the model computes with the logarithm of exactly that."""
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if name.endswith("A_log"):
                tensor.copy_(torch.log(torch.from_numpy(np.exp(tensor.numpy()).astype("f4").astype("f8"))))


def gemma4(seed, name, experts):
    """Odd numbers of heads, a window shorter than the prompt; inputs of layers and shared caches, or experts."""
    kinds = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    heads, kv_heads = (6, 2) if experts else (3, 1)
    full = {"head_dim": 16} | ({"num_key_value_heads": 1} if experts else {})
    config = Gemma4TextConfig(
        vocab_size=VOCAB_SIZE, vocab_size_per_layer_input=VOCAB_SIZE, hidden_size=WIDTH, intermediate_size=48,
        num_hidden_layers=5, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=8,
        per_layer_config={str(i): full for i, kind in enumerate(kinds) if kind == "full_attention"},
        layer_types=kinds, sliding_window=11, max_position_embeddings=CONTEXT, final_logit_softcapping=20.0,
        hidden_size_per_layer_input=0 if experts else 8, num_kv_shared_layers=0 if experts else 2,
        use_double_wide_mlp=False, attention_k_eq_v=experts, enable_moe_block=experts,
        num_experts=7 if experts else None, top_k_experts=2 if experts else None, moe_intermediate_size=20,
        rope_parameters={"full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1e6, "rope_type": "proportional"},
                         "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}})
    model = random_weights(Gemma4ForCausalLM._from_config(config, attn_implementation="eager",
                                                          experts_implementation="eager"), seed)
    model.tie_weights()
    w = Writer(name, "gemma4", model)
    w.common(heads, [kv_heads if kind == "sliding_attention" else 1 for kind in kinds], 48)
    w.keys(attention__key_length=16, attention__value_length=16, attention__key_length_swa=8,
           attention__value_length_swa=8, rope__dimension_count=16, rope__dimension_count_swa=8, rope__freq_base=1e6,
           rope__freq_base_swa=1e4, attention__sliding_window=11, final_logit_softcapping=20.0,
           attention__sliding_window_pattern=[kind == "sliding_attention" for kind in kinds],
           attention__shared_kv_layers=config.num_kv_shared_layers,
           embedding_length_per_layer_input=config.hidden_size_per_layer_input)
    if experts:
        w.keys(expert_count=7, expert_used_count=2, expert_feed_forward_length=20)
    w.tensor("rope_freqs.weight", np.array([1.0, 1.0] + [1e30] * 6))
    for i in range(5):
        w.layer(i, GEMMA4)
        w.tensor(f"blk.{i}.layer_output_scale.weight", w.part(i, "layer_scalar"))
        if experts:
            w.tensor(f"blk.{i}.ffn_gate_inp.scale", w.part(i, "router.scale"))
            w.tensor(f"blk.{i}.ffn_down_exps.scale", w.part(i, "router.per_expert_scale"))
            w.tensor(f"blk.{i}.ffn_gate_up_exps.weight", w.part(i, "experts.gate_up_proj"))
            w.tensor(f"blk.{i}.ffn_down_exps.weight", w.part(i, "experts.down_proj"))
    if not experts:
        w.tensor("per_layer_token_embd.weight", w.state["model.embed_tokens_per_layer.weight"])
        w.tensor("per_layer_model_proj.weight", w.state["model.per_layer_model_projection.weight"])
        w.tensor("per_layer_proj_norm.weight", w.state["model.per_layer_projection_norm.weight"])
    w.ends()
    return w, model


def nemotron(seed, name):
    """Dense: Mamba-2 in three groups of one head, attention with one key-value head, MLPs; the last layer is Mamba-2."""
    kinds = ["linear_attention", "mlp", "full_attention", "mlp", "linear_attention"]
    config = NemotronHConfig(
        vocab_size=VOCAB_SIZE, hidden_size=WIDTH, intermediate_size=40, num_hidden_layers=5, layers_block_type=kinds,
        num_attention_heads=3, num_key_value_heads=1, head_dim=16, mamba_num_heads=3, mamba_head_dim=12, n_groups=3,
        ssm_state_size=10, conv_kernel=3, expand=1, chunk_size=16, time_step_min=1e-9, max_position_embeddings=CONTEXT,
        layer_norm_epsilon=1e-6, tie_word_embeddings=False)
    model = random_weights(NemotronHForCausalLM._from_config(config, attn_implementation="eager"), seed)
    exact_decays(model)
    w = Writer(name, "nemotron_h", model)
    w.common(3, [1 if kind == "full_attention" else 0 for kind in kinds], [40 if kind == "mlp" else 0 for kind in kinds])
    w.keys(attention__key_length=16, attention__value_length=16, ssm__conv_kernel=3, ssm__state_size=10,
           ssm__group_count=3, ssm__inner_size=36, ssm__time_step_rank=3)
    for i, kind in enumerate(kinds):
        w.layer(i, {"attn_norm": "norm"})
        if kind == "linear_attention":
            w.mamba(i, "mixer", 3)
        else:
            w.layer(i, {"attn_q": "mixer.q_proj", "attn_k": "mixer.k_proj", "attn_v": "mixer.v_proj",
                        "attn_output": "mixer.o_proj", "ffn_up": "mixer.up_proj", "ffn_down": "mixer.down_proj"})
    w.ends("model.embeddings.weight", "model.norm_f.weight")
    return w, model


def granite(seed, name):
    """Mamba-2 and attention without rotation, experts beside one that all tokens have, tied output."""
    kinds = ["linear_attention", "full_attention", "linear_attention"]
    config = GraniteMoeHybridConfig(
        vocab_size=VOCAB_SIZE, hidden_size=WIDTH, intermediate_size=24, shared_intermediate_size=40, num_hidden_layers=3,
        layer_types=kinds, num_attention_heads=4, num_key_value_heads=2, num_local_experts=5, num_experts_per_tok=2,
        mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=1, mamba_d_state=12, mamba_d_conv=4, mamba_expand=2,
        mamba_chunk_size=16, max_position_embeddings=CONTEXT, rms_norm_eps=1e-6, tie_word_embeddings=True,
        embedding_multiplier=5.0, attention_multiplier=0.3, residual_multiplier=0.4, logits_scaling=0.5,
        position_embedding_type="nope")
    model = random_weights(GraniteMoeHybridForCausalLM._from_config(config, attn_implementation="eager",
                                                                    experts_implementation="eager"), seed)
    exact_decays(model)
    model.tie_weights()
    w = Writer(name, "granitehybrid", model)
    w.common(4, [2 if kind == "full_attention" else 0 for kind in kinds], 24)
    w.keys(embedding_scale=5.0, attention__scale=0.3, residual_scale=0.4, logit_scale=0.5, expert_count=5,
           expert_used_count=2, expert_shared_feed_forward_length=40, ssm__conv_kernel=4, ssm__state_size=12,
           ssm__group_count=1, ssm__inner_size=64, ssm__time_step_rank=4, rope__scaling__finetuned=False)
    for i, kind in enumerate(kinds):
        w.layer(i, LLAMA | {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
                            "ffn_down_shexp": "shared_mlp.output_linear"})
        if kind == "linear_attention":
            w.mamba(i, "mamba", 1)
        w.split(i, "shared_mlp.input_linear.weight", ["ffn_gate_shexp", "ffn_up_shexp"])
        w.layer(i, {"ffn_gate_inp": "block_sparse_moe.router"})
        w.experts(i, "block_sparse_moe.experts")
    w.ends()
    return w, model


def score_experts(model, score):
    """Routers whose class scores experts by a sigmoid do so by another function."""
    for layer in model.model.layers:
        if hasattr(layer.mlp, "gate"):
            def forward(hidden, of_class=layer.mlp.gate.forward):
                with unittest.mock.patch.object(torch.Tensor, "sigmoid", score):
                    return of_class(hidden)
            layer.mlp.gate.forward = forward


def deepseek(seed, name, gating=2):
    """Queries in one product, odd heads, a stretched context, groups of experts. gating 4: scores are
    sqrt(softplus(logit)), which no class of transformers has."""
    config = DeepseekV3Config(
        vocab_size=VOCAB_SIZE, hidden_size=WIDTH, intermediate_size=48, moe_intermediate_size=20, num_hidden_layers=3,
        num_attention_heads=3, num_key_value_heads=3, n_routed_experts=9, num_experts_per_tok=3, n_shared_experts=2,
        n_group=3, topk_group=2, norm_topk_prob=True, routed_scaling_factor=1.5, first_k_dense_replace=1,
        q_lora_rank=None, kv_lora_rank=24, qk_rope_head_dim=8, qk_nope_head_dim=12, v_head_dim=10,
        max_position_embeddings=CONTEXT, rms_norm_eps=1e-6, tie_word_embeddings=False, rope_interleave=True,
        rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                         "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 64})
    model = random_weights(DeepseekV3ForCausalLM._from_config(config, attn_implementation="eager",
                                                              experts_implementation="eager"), seed)
    if gating == 4:
        score_experts(model, lambda logits: torch.nn.functional.softplus(logits).sqrt())
    w = Writer(name, "deepseek2", model)
    w.common(3, 1, 48)
    w.keys(attention__key_length=32, attention__value_length=24, attention__key_length_mla=20,
           attention__value_length_mla=10, attention__kv_lora_rank=24, rope__dimension_count=8, rope__freq_base=10000.0,
           rope__scaling__type="yarn", rope__scaling__factor=4.0, rope__scaling__original_context_length=64,
           rope__scaling__yarn_log_multiplier=0.1, expert_count=9, expert_used_count=3, expert_shared_count=2,
           expert_feed_forward_length=20, expert_group_count=3, expert_group_used_count=2, expert_gating_func=gating,
           expert_weights_norm=True, expert_weights_scale=1.5, leading_dense_block_count=1)
    for i in range(3):
        w.layer(i, LLAMA | {"attn_q": "self_attn.q_proj", "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
                            "attn_kv_a_norm": "self_attn.kv_a_layernorm", "ffn_gate": "mlp.gate_proj",
                            "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate",
                            "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
                            "ffn_up_shexp": "mlp.shared_experts.up_proj",
                            "ffn_down_shexp": "mlp.shared_experts.down_proj"})
        kv_b = w.part(i, "self_attn.kv_b_proj.weight").reshape(3, 12 + 10, 24)
        w.tensor(f"blk.{i}.attn_k_b.weight", kv_b[:, :12].swapaxes(1, 2))
        w.tensor(f"blk.{i}.attn_v_b.weight", kv_b[:, 12:])
        if i > 0:
            w.experts(i, "mlp.experts")
            w.tensor(f"blk.{i}.exp_probs_b.bias", w.part(i, "mlp.gate.e_score_correction_bias"))
    w.ends()
    return w, model


def gpt_oss(seed, name):
    """Sinks, biases, windows, yarn without rounded ends, experts weighted by the softmax of the chosen, odd heads."""
    config = GptOssConfig(
        vocab_size=VOCAB_SIZE, hidden_size=WIDTH, intermediate_size=20, num_hidden_layers=3, num_attention_heads=3,
        num_key_value_heads=1, head_dim=16, sliding_window=11, num_local_experts=5, num_experts_per_tok=2,
        max_position_embeddings=CONTEXT, rms_norm_eps=1e-6, tie_word_embeddings=False,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0,
                         "truncate": False, "original_max_position_embeddings": 32})
    model = random_weights(GptOssForCausalLM._from_config(config, attn_implementation="eager",
                                                          experts_implementation="eager"), seed)
    w = Writer(name, "gpt-oss", model)
    w.common(3, 1, 20)
    w.keys(attention__key_length=16, attention__value_length=16, attention__sliding_window=11, rope__freq_base=10000.0,
           rope__scaling__type="yarn", rope__scaling__factor=8.0, rope__scaling__original_context_length=32,
           expert_count=5, expert_used_count=2, expert_feed_forward_length=20)
    for i in range(3):
        w.layer(i, ATTENTION | {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
                                "ffn_gate_inp": "mlp.router"})
        w.tensor(f"blk.{i}.attn_sinks.weight", w.part(i, "self_attn.sinks"))
        gate_up, bias = w.part(i, "mlp.experts.gate_up_proj"), w.part(i, "mlp.experts.gate_up_proj_bias")
        for first, part in enumerate(("gate", "up")):
            w.tensor(f"blk.{i}.ffn_{part}_exps.weight", gate_up[:, :, first::2].swapaxes(1, 2))
            w.tensor(f"blk.{i}.ffn_{part}_exps.bias", bias[:, first::2])
        w.tensor(f"blk.{i}.ffn_down_exps.weight", w.part(i, "mlp.experts.down_proj").swapaxes(1, 2))
        w.tensor(f"blk.{i}.ffn_down_exps.bias", w.part(i, "mlp.experts.down_proj_bias"))
    w.ends()
    return w, model


def qwen3_moe(seed, name):
    """Weights of experts that are not divided by their sum, odd heads, tied output."""
    config = Qwen3MoeConfig(
        vocab_size=VOCAB_SIZE, hidden_size=WIDTH, intermediate_size=48, moe_intermediate_size=20, num_hidden_layers=3,
        num_attention_heads=5, num_key_value_heads=1, head_dim=8, num_experts=7, num_experts_per_tok=3,
        norm_topk_prob=False, max_position_embeddings=CONTEXT, rms_norm_eps=1e-6, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    model = random_weights(Qwen3MoeForCausalLM._from_config(config, attn_implementation="eager",
                                                            experts_implementation="eager"), seed)
    model.tie_weights()
    w = Writer(name, "qwen3moe", model)
    w.common(5, 1, 48)
    w.keys(attention__key_length=8, attention__value_length=8, rope__freq_base=10000.0, expert_count=7,
           expert_used_count=3, expert_feed_forward_length=20, expert_weights_norm=False)
    for i in range(3):
        w.layer(i, LLAMA | ATTENTION | {"ffn_gate_inp": "mlp.gate"})
        w.experts(i, "mlp.experts")
    w.ends()
    return w, model


def qwen3_5(seed, name):
    """The delta rule with an odd number of heads, attention with gates and partial rotation."""
    kinds = ["linear_attention", "full_attention", "linear_attention"]
    config = Qwen3_5TextConfig(
        vocab_size=VOCAB_SIZE, hidden_size=WIDTH, intermediate_size=48, num_hidden_layers=3, num_attention_heads=3,
        num_key_value_heads=1, head_dim=16, linear_conv_kernel_dim=4, linear_key_head_dim=20, linear_value_head_dim=20,
        linear_num_key_heads=3, linear_num_value_heads=3, layer_types=kinds, max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-6, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
                         "mrope_section": [2, 1, 1], "mrope_interleaved": True})
    model = random_weights(Qwen3_5ForCausalLM._from_config(config, attn_implementation="eager"), seed)
    exact_decays(model)
    with torch.no_grad():  # files hold 1 + weight as float32
        for key, tensor in model.named_parameters():
            if "norm" in key and "linear_attn" not in key:
                tensor.copy_(torch.from_numpy((1 + tensor.numpy()).astype("f4").astype("f8") - 1))
    w = Writer(name, "qwen35", model)
    for key in w.state:
        if "norm" in key and "linear_attn" not in key:
            w.state[key] = 1 + w.state[key]
    w.common(3, 1, 48)
    w.keys(attention__key_length=16, attention__value_length=16, rope__dimension_count=8, rope__freq_base=10000.0,
           ssm__conv_kernel=4, ssm__state_size=20, ssm__group_count=3, ssm__time_step_rank=3, ssm__inner_size=60,
           attention__recurrent_layers=[kind == "linear_attention" for kind in kinds])
    for i, kind in enumerate(kinds):
        w.layer(i, ATTENTION | {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
                                "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
                                "attn_qkv": "linear_attn.in_proj_qkv", "attn_gate": "linear_attn.in_proj_z",
                                "ssm_beta": "linear_attn.in_proj_b", "ssm_alpha": "linear_attn.in_proj_a",
                                "ssm_norm": "linear_attn.norm", "ssm_out": "linear_attn.out_proj"})
        if kind == "linear_attention":
            w.tensor(f"blk.{i}.ssm_conv1d.weight", w.part(i, "linear_attn.conv1d.weight")[:, 0])
            w.tensor(f"blk.{i}.ssm_dt.bias", w.part(i, "linear_attn.dt_bias"))
            w.tensor(f"blk.{i}.ssm_a", -np.exp(w.part(i, "linear_attn.A_log")))
    w.ends()
    return w, model


FIXTURES = [
    ("gemma4e", "inputs of layers, caches that layers share, two kinds of heads and rotations", lambda s, n: gemma4(s, n, False)),
    ("gemma4moe", "experts beside an MLP, values that are keys, key-value heads by layer", lambda s, n: gemma4(s, n, True)),
    ("nemotron_h", "layers of one kind each, Mamba-2 in groups, an MLP without a gate", nemotron),
    ("granitehybrid-moe", "Mamba-2, experts beside one that all tokens have, scales", granite),
    ("deepseek2", "latent attention with yarn, groups of experts", deepseek),
    ("gpt-oss", "sinks, windows, yarn, biases, the softmax of the chosen experts, odd heads", gpt_oss),
    ("qwen3moe", "weights of experts that are not divided by their sum, odd heads, tied output", qwen3_moe),
    ("qwen35", "the delta rule with odd heads, gated attention", qwen3_5),
    ("deepseek2-softplus", "experts scored by the root of a softplus", lambda s, n: deepseek(s, n, 4)),
]


@torch.inference_mode()
def continue_greedily(model, ids):
    prompt_logits = model(torch.tensor([ids]), use_cache=False).logits[0]
    greedy, margins = [], []
    for _ in range(GREEDY_TOKENS):
        best = torch.topk(model(torch.tensor([ids + greedy]), use_cache=False).logits[0, -1], 2)
        greedy.append(best.indices[0].item())
        margins.append(round((best.values[0] - best.values[1]).item(), 6))
    return prompt_logits, greedy, margins


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/families"
    parser.add_argument("--out", type=pathlib.Path, default=default, help="folder to write to")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    ids = [(i * i * 31 + i * 17 + 5) % VOCAB_SIZE for i in range(PROMPT_TOKENS)]
    rows = []
    for seed, (name, shows, make) in enumerate(FIXTURES, start=70):
        writer, model = make(seed, name)
        writer.gguf.write(out / f"{name}.gguf")
        logits, greedy, margins = continue_greedily(model, ids)
        logits.numpy().astype("<f4").tofile(out / f"{name}.bin")
        print(f"{name}: logits' standard deviation {logits.std().item():.2f}, {len(set(greedy))} different greedy "
              f"tokens, smallest margin {min(margins)}")
        rows.append({"name": name, "model": f"families/{name}.gguf", "shows": shows, "vocab": VOCAB_SIZE, "prompts": [
            {"text": "140 tokens", "ids": ids, "logits": f"families/{name}.bin", "greedy": greedy, "margins": margins}]})
    write_json(out / "manifest.json", {"made_by": "tools/make_family_fixtures.py: transformers, float64",
                                       "logits": "float32, little-endian, [tokens of the prompt, vocab]", "models": rows})


if __name__ == "__main__":
    main()
