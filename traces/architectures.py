"""Captures a step of each of many models from installed libraries, small and randomly initialised.

Run as `python traces/architectures.py --output FOLDER [--only NAME ...] [--compile]`. A model whose
library is not installed is passed over, and named. Needs any of torchvision, torchaudio, timm,
transformers, diffusers, torch_geometric.
"""

from __future__ import annotations

import argparse
import gzip
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from capture import Iteration, record
from torch import Tensor, nn
from torch.nn import functional

Model = Callable[[], Callable[[], Tensor]]
"""Builds a model and returns what computes a loss with it."""


def classifier(model: nn.Module, *shape: int) -> Callable[[], Tensor]:
    """Return the loss of images, ten classes, under `model`; its parameters are held by it."""
    images, labels = torch.randn(2, *shape), torch.randint(10, (2,))
    return trained(model, lambda: functional.cross_entropy(model(images), labels))


def trained(model: nn.Module, loss: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Attach the model whose parameters are to be trained to its loss."""
    loss.model = model  # type: ignore[attr-defined]
    return loss


def resnet() -> Callable[[], Tensor]:
    from torchvision.models import resnet18

    return classifier(resnet18(num_classes=10), 3, 64, 64)


def mobilenet() -> Callable[[], Tensor]:
    from torchvision.models import mobilenet_v3_small

    return classifier(mobilenet_v3_small(num_classes=10), 3, 64, 64)


def swin() -> Callable[[], Tensor]:
    from torchvision.models.swin_transformer import SwinTransformer

    model = SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], num_classes=10)
    return classifier(model, 3, 64, 64)


def detection() -> Callable[[], Tensor]:
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large as ssd

    model = ssd(weights=None, weights_backbone=None, num_classes=10)
    images = [torch.rand(3, 96, 96) for _ in range(2)]
    boxes = torch.tensor([[8.0, 8.0, 60.0, 70.0]])
    targets = [{"boxes": boxes, "labels": torch.tensor([3])} for _ in images]
    return trained(model, lambda: sum(model(images, targets).values()))


def segmentation() -> Callable[[], Tensor]:
    from torchvision.models.segmentation import lraspp_mobilenet_v3_large as lraspp

    model = lraspp(weights=None, weights_backbone=None, num_classes=5)
    images, labels = torch.randn(2, 3, 64, 64), torch.randint(5, (2, 64, 64))
    return trained(model, lambda: functional.cross_entropy(model(images)["out"], labels))


def convnext() -> Callable[[], Tensor]:
    import timm

    return classifier(timm.create_model("convnext_atto", num_classes=10), 3, 64, 64)


def vision_transformer() -> Callable[[], Tensor]:
    import timm

    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=64, depth=2, num_classes=10, pretrained=False
    )
    return classifier(model, 3, 64, 64)


def gpt2() -> Callable[[], Tensor]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=211, n_positions=64, n_embd=64, n_layer=2, n_head=4)
    return language_model(GPT2LMHeadModel(config), 211)


def llama() -> Callable[[], Tensor]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=211, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    return language_model(LlamaForCausalLM(config), 211)


def mixtral() -> Callable[[], Tensor]:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=211, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=4,
    )  # fmt: skip
    return language_model(MixtralForCausalLM(config), 211)


def mamba() -> Callable[[], Tensor]:
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(vocab_size=211, hidden_size=48, state_size=8, num_hidden_layers=2)
    return language_model(MambaForCausalLM(config), 211, length=12)


def language_model(model: nn.Module, vocabulary: int, length: int = 32) -> Callable[[], Tensor]:
    tokens = torch.randint(vocabulary, (2, length))
    return trained(model, lambda: model(input_ids=tokens, labels=tokens).loss)


def bert() -> Callable[[], Tensor]:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=211, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=128,
    )  # fmt: skip
    model = BertForMaskedLM(config)
    tokens = torch.randint(211, (2, 24))
    mask = torch.ones_like(tokens)
    mask[:, 20:] = 0
    return trained(model, lambda: model(input_ids=tokens, attention_mask=mask, labels=tokens).loss)


def t5() -> Callable[[], Tensor]:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=211, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4,
        decoder_start_token_id=0,
    )  # fmt: skip
    model = T5ForConditionalGeneration(config)
    source, target = torch.randint(1, 211, (2, 20)), torch.randint(1, 211, (2, 10))
    return trained(model, lambda: model(input_ids=source, labels=target).loss)


def whisper() -> Callable[[], Tensor]:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=211, d_model=64, encoder_layers=1, decoder_layers=1, num_mel_bins=16,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=96,
        decoder_ffn_dim=96, max_source_positions=50, max_target_positions=32, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    model = WhisperForConditionalGeneration(config)
    sound, words = torch.randn(2, 16, 100), torch.randint(3, 211, (2, 12))
    return trained(model, lambda: model(input_features=sound, labels=words).loss)


def wav2vec2() -> Callable[[], Tensor]:
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    config = Wav2Vec2Config(
        vocab_size=20, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, conv_dim=(32, 32), conv_stride=(5, 4), conv_kernel=(10, 8),
        num_feat_extract_layers=2, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4,
        mask_time_prob=0.0,
    )  # fmt: skip
    model = Wav2Vec2ForCTC(config)
    sound, words = torch.randn(2, 2000), torch.randint(1, 20, (2, 6))
    return trained(model, lambda: model(sound, labels=words).loss)


def conformer() -> Callable[[], Tensor]:
    from torchaudio.models import Conformer

    model = Conformer(40, 4, 64, 2, 15)
    sound, lengths = torch.randn(2, 30, 40), torch.tensor([30, 22])
    return trained(model, lambda: model(sound, lengths)[0].square().mean())


def diffusion() -> Callable[[], Tensor]:
    from diffusers import UNet2DModel

    model = UNet2DModel(
        sample_size=16, block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip
    images, steps = torch.randn(2, 3, 16, 16), torch.tensor([3, 700])
    return trained(model, lambda: (model(images, steps).sample - images).square().mean())


def diffusion_transformer() -> Callable[[], Tensor]:
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(
        num_attention_heads=4, attention_head_dim=12, in_channels=4, num_layers=2, sample_size=16
    )
    latents, steps, labels = torch.randn(2, 4, 16, 16), torch.tensor([3, 700]), torch.tensor([1, 2])
    return trained(
        model, lambda: model(latents, timestep=steps, class_labels=labels).sample.square().mean()
    )


def recommendation() -> Callable[[], Tensor]:
    """Dense features and bags of categories, their products, a click: torch alone."""
    tables = nn.ModuleList(nn.EmbeddingBag(100 * (k + 1), 16, mode="sum") for k in range(4))
    bottom, top = nn.Linear(13, 16), nn.Sequential(nn.Linear(26, 32), nn.ReLU(), nn.Linear(32, 1))
    dense, clicks = torch.randn(8, 13), torch.rand(8, 1).round()
    bags = [torch.randint(100, (24,)) for _ in tables]
    offsets = torch.arange(0, 24, 3)
    pairs = torch.tril_indices(5, 5, -1)

    def loss() -> Tensor:
        features = [bottom(dense).relu()]
        features += [table(bag, offsets) for table, bag in zip(tables, bags, strict=True)]
        stacked = torch.stack(features, 1)
        crossed = torch.bmm(stacked, stacked.transpose(1, 2))[:, pairs[0], pairs[1]]
        logits = top(torch.cat([features[0], crossed], 1))
        return functional.binary_cross_entropy_with_logits(logits, clicks)

    return trained(nn.ModuleList([tables, bottom, top]), loss)


def recurrent() -> Callable[[], Tensor]:
    """Packed sequences through an LSTM and a GRU: torch alone."""
    embedding, head = nn.Embedding(50, 24), nn.Linear(20, 50)
    lstm, gru = nn.LSTM(24, 32, 2, batch_first=True), nn.GRU(32, 10, bidirectional=True)
    tokens, lengths = torch.randint(50, (3, 12)), torch.tensor([12, 9, 4])

    def loss() -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(embedding(tokens), lengths, batch_first=True)
        hidden, _ = nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)
        output, _ = gru(hidden.transpose(0, 1))
        return functional.cross_entropy(head(output).flatten(0, 1), tokens.T.flatten())

    return trained(nn.ModuleList([embedding, lstm, gru, head]), loss)


def graph_convolution() -> Callable[[], Tensor]:
    from torch_geometric.nn import GCN

    return node_classifier(GCN(16, 32, 2, 5))


def graph_attention() -> Callable[[], Tensor]:
    from torch_geometric.nn import GAT

    return node_classifier(GAT(16, 32, 2, 5, heads=4))


def node_classifier(model: nn.Module) -> Callable[[], Tensor]:
    features, edges = torch.randn(40, 16), torch.randint(40, (2, 160))
    labels = torch.randint(5, (40,))
    return trained(model, lambda: functional.cross_entropy(model(features, edges), labels))


ARCHITECTURES: dict[str, Model] = {
    model.__name__: model
    for model in (
        resnet, mobilenet, swin, detection, segmentation, convnext, vision_transformer, gpt2, llama,
        mixtral, mamba, bert, t5, whisper, wav2vec2, conformer, diffusion, diffusion_transformer,
        recommendation, recurrent, graph_convolution, graph_attention,
    )
}  # fmt: skip


def step_of(model: Model, compiled: bool) -> Iteration:
    """Return a training step: a loss, its backward pass, and AdamW."""
    loss: Any = model()
    optimizer = torch.optim.AdamW(loss.model.parameters(), lr=1e-3, foreach=True)
    compute = torch.compile(loss) if compiled else loss

    def iteration() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(compute())
        optimizer.step()

    return iteration


def main() -> None:
    """Capture the models that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="folder for the traces")
    parser.add_argument("--only", nargs="+", choices=ARCHITECTURES, default=list(ARCHITECTURES))
    parser.add_argument("--compile", action="store_true", help="compile the models")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name in arguments.only:
        torch.manual_seed(0)
        try:
            iteration = step_of(ARCHITECTURES[name], arguments.compile)
            iteration()
        except ImportError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        trace, _, _ = record(iteration, torch.device("cpu"), arguments.compile)
        suffix = "_compiled" if arguments.compile else ""
        (arguments.output / f"{name}{suffix}.json.gz").write_bytes(gzip.compress(trace, mtime=0))
        print(f"{name}: captured", file=sys.stderr)


if __name__ == "__main__":
    main()
