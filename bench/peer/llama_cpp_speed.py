"""Speed of llama.cpp on one model file, measured as inferno bench measures: run by bench/compare with the Python of the
private environment, prints one JSON object."""

import argparse
import json
import random
import statistics
import time

import llama_cpp

CACHE_TYPES = {"f32": llama_cpp.GGML_TYPE_F32, "f16": llama_cpp.GGML_TYPE_F16, "q8_0": llama_cpp.GGML_TYPE_Q8_0}
if hasattr(llama_cpp, "GGML_TYPE_BF16"):
    CACHE_TYPES["bf16"] = llama_cpp.GGML_TYPE_BF16


class Peer:
    def __init__(self, args):
        model_params = llama_cpp.llama_model_default_params()
        model_params.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(args.model.encode(), model_params)
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {args.model}")
        params = llama_cpp.llama_context_default_params()
        positions = args.depth + max(args.prompt, args.gen, 1)
        params.n_ctx = positions * args.batch
        params.n_batch = params.n_ubatch = 512
        params.n_seq_max = args.batch
        params.n_threads = params.n_threads_batch = args.threads
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        params.type_k = params.type_v = CACHE_TYPES[args.kv_type]
        params.no_perf = True
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit("llama.cpp cannot make a context")
        self.batch = llama_cpp.llama_batch_init(512, 0, 1)
        vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        generator = random.Random(1)
        self.tokens = [generator.randrange(vocabulary) for _ in range(positions)]

    def memory(self):
        return llama_cpp.llama_get_memory(self.context)

    def step(self, entries):
        """One decode of [(token, position, sequence, wants logits)]."""
        batch = self.batch
        batch.n_tokens = len(entries)
        for i, (token, position, sequence, logits) in enumerate(entries):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = logits
        if llama_cpp.llama_decode(self.context, batch) != 0:
            raise SystemExit("llama.cpp failed to decode")

    def feed(self, sequence, first, count):
        for begin in range(0, count, 512):
            size = min(512, count - begin)
            last = begin + size == count
            self.step(
                [
                    (self.tokens[begin + i], first + begin + i, sequence, last and i == size - 1)
                    for i in range(size)
                ]
            )
        llama_cpp.llama_synchronize(self.context)

    def keep(self, sequences, depth):
        for sequence in range(sequences):
            llama_cpp.llama_memory_seq_rm(self.memory(), sequence, depth, -1)


def measure(args):
    peer = Peer(args)
    result = {"features": llama_cpp.llama_print_system_info().decode(), "version": llama_cpp.__version__}
    for sequence in range(args.batch if args.depth else 0):
        peer.feed(sequence, 0, args.depth)

    def prefill():
        peer.keep(args.batch, args.depth)
        begin = time.perf_counter()
        peer.feed(0, args.depth, args.prompt)
        return args.prompt / (time.perf_counter() - begin)

    def decode(steps):
        peer.keep(args.batch, args.depth)
        begin = time.perf_counter()
        for i in range(steps):
            peer.step([(peer.tokens[i], args.depth + i, s, True) for s in range(args.batch)])
            llama_cpp.llama_synchronize(peer.context)
        return steps * args.batch / (time.perf_counter() - begin)

    if args.prompt:
        prefill()
        result["prefill"] = statistics.median(prefill() for _ in range(args.repeat))
    if args.gen:
        decode(min(args.gen, 8))
        result["decode"] = statistics.median(decode(args.gen) for _ in range(args.repeat))
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", action="store_true", help="print only the feature line")
    parser.add_argument("--model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--gen", type=int, default=64)
    parser.add_argument("--depth", type=int, default=0)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--kv-type", choices=sorted(CACHE_TYPES), default="f16")
    args = parser.parse_args()
    silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(silent, None)
    llama_cpp.llama_backend_init()
    if args.features:
        print(
            json.dumps(
                {"features": llama_cpp.llama_print_system_info().decode(), "version": llama_cpp.__version__}
            )
        )
        return
    if not args.model:
        parser.error("--model is required")
    print(json.dumps(measure(args)))


if __name__ == "__main__":
    main()
