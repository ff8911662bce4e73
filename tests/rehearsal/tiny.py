"""A tiny member of the model family that the paper uses, with random weights: tokenizer, chat template, image processor, config and safetensors in one folder of about 1 MB.

    python tests/rehearsal/tiny.py FOLDER [qwen3-vl | qwen3.5]        # with the Python of the rehearsal's environment: it needs torch and transformers

It knows nothing, but everything that is not knowledge is real: the vision tower, the number of tokens of a picture, the mapping of weight names, the reply's grammar. The weights are wide enough for another picture to give
another reply.
"""
import json, random, shutil, sys
from pathlib import Path

MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
CHAT = """{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}{% if c.type == 'image' or 'image_url' in c or 'image' in c %}<|vision_start|><|image_pad|><|vision_end|>{% elif 'text' in c %}{{ c.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif %}"""
CONTEXT, PIXELS = 65536, dict(shortest_edge=256 * 256, longest_edge=1024 * 1024)      # the family's smallest picture; its largest is larger, which a CPU would feel at the start


def tokenizer(d):
    "A byte-level vocabulary of 600, trained on word salad."
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    t = Tokenizer(models.BPE()); t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    rng, words = random.Random(0), "the a of to in is it and for on with as scene video frame person car street answer question label yes no evidence text what who where {} [] : , \" ".split()
    t.train_from_iterator([" ".join(rng.choices(words, k=30)) for _ in range(400)], trainers.BpeTrainer(vocab_size=600, special_tokens=MARKS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_tokens(["<think>", "</think>"]); t.save(str(d / "tokenizer.json"))
    put(d, "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast", model_max_length=CONTEXT, eos_token="<|im_end|>", pad_token="<|endoftext|>", clean_up_tokenization_spaces=False, chat_template=CHAT)
    (d / "chat_template.jinja").write_text(CHAT)
    return t

def put(d, name, **value): (d / name).write_text(json.dumps(value, indent=1))

def config(t, family):
    "The family's config with everything small."
    end, pad = t.token_to_id("<|im_end|>"), t.token_to_id("<|endoftext|>"); new = family == "qwen3.5"
    rope = dict(rope_type="default", rope_theta=10000.0, mrope_section=[6, 5, 5], mrope_interleaved=True)
    text = dict(model_type="qwen3_5_text" if new else "qwen3_vl_text", vocab_size=t.get_vocab_size(), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=32, hidden_act="silu",
                max_position_embeddings=CONTEXT, rms_norm_eps=1e-6, tie_word_embeddings=False, bos_token_id=None, eos_token_id=end, pad_token_id=pad, rope_parameters=rope)
    if new: # linear and full attention in turn; the CPU's kernel wants heads of 128
        text |= dict(layer_types=["linear_attention", "full_attention"], full_attention_interval=2, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=128, linear_value_head_dim=128, linear_conv_kernel_dim=4,
                     attn_output_gate=True, mamba_ssm_dtype="float32", rope_parameters=rope | dict(partial_rotary_factor=1.0))
    kind = "qwen3_5" if new else "qwen3_vl"
    vision = dict(model_type=kind, depth=2, hidden_size=64, intermediate_size=128, num_heads=2, out_hidden_size=64, patch_size=16, spatial_merge_size=2, temporal_patch_size=2, num_position_embeddings=64, deepstack_visual_indexes=[] if new else [0],
                  in_channels=3, hidden_act="gelu_pytorch_tanh")
    ids = {f"{k}_token_id": t.token_to_id(f"<|{v}|>") for k, v in dict(image="image_pad", video="video_pad", vision_start="vision_start", vision_end="vision_end").items()}
    return dict(architectures=["Qwen3_5ForConditionalGeneration" if new else "Qwen3VLForConditionalGeneration"], model_type=kind, torch_dtype="bfloat16", tie_word_embeddings=False, text_config=text, vision_config=vision, **ids)

def build(d, family="qwen3-vl"):
    "Write the model into folder `d`."
    import torch, transformers
    d = Path(d); d.mkdir(parents=True, exist_ok=True); t = tokenizer(d); c = config(t, family); put(d, "config.json", **c)
    put(d, "generation_config.json", eos_token_id=[t.token_to_id("<|im_end|>"), t.token_to_id("<|endoftext|>")], pad_token_id=t.token_to_id("<|endoftext|>"))
    sizes = dict(patch_size=16, temporal_patch_size=2, merge_size=2, image_mean=[.5] * 3, image_std=[.5] * 3, processor_class="Qwen3VLProcessor")
    put(d, "preprocessor_config.json", size=PIXELS, image_processor_type="Qwen2VLImageProcessor", **sizes); put(d, "video_preprocessor_config.json", size=PIXELS, video_processor_type="Qwen3VLVideoProcessor", **sizes)
    torch.manual_seed(0); m = getattr(transformers, c["architectures"][0])(transformers.AutoConfig.from_pretrained(d))
    with torch.no_grad():
        for p in m.parameters():
            if p.ndim >= 2: p.normal_(0, 1.5 / (p[0].numel()) ** .5)
    m.to(torch.bfloat16).save_pretrained(d / "made"); shutil.move(d / "made" / "model.safetensors", d / "model.safetensors"); shutil.rmtree(d / "made")   # its config.json is transformers' own, with more in it
    return d


if __name__ == "__main__": print(build(*sys.argv[1:]))
