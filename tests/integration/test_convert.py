"""Hugging Face models with random weights, and what `convert` makes of them: the same logits."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import fusedops  # noqa: E402

pytestmark = pytest.mark.integration

# The class of a model, that of its configuration, and what this is made of.
MODELS = {
    "gpt2": (
        *("GPT2LMHeadModel", "GPT2Config"),
        {
            "vocab_size": 211,
            "n_embd": 96,
            "n_layer": 3,
            "n_head": 4,
            "n_positions": 64,
            "bos_token_id": 0,
            "eos_token_id": 0,
        },
    ),
    "opt": (
        *("OPTForCausalLM", "OPTConfig"),
        {
            "vocab_size": 211,
            "hidden_size": 96,
            "ffn_dim": 200,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "max_position_embeddings": 64,
            "word_embed_proj_dim": 96,
        },
    ),
    "llama": (
        *("LlamaForCausalLM", "LlamaConfig"),
        {
            "vocab_size": 211,
            "hidden_size": 96,
            "intermediate_size": 200,
            "num_hidden_layers": 3,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "max_position_embeddings": 64,
        },
    ),
}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
every = pytest.mark.parametrize("kind", MODELS)


def model_of(kind):
    """A model with random weights. transformers takes seconds to import: collection needs none."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    model, config, options = MODELS[kind]
    return getattr(transformers, model)(getattr(transformers, config)(**options))


@pytest.fixture
def made(request, kind):
    """A model with weights large enough that every part of it shows in the logits."""
    torch.manual_seed(torch.seed() % 2**31)
    model = model_of(kind).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.3 if "bias" in name or "norm" in name or "ln_" in name else 0.08
            parameter.add_(torch.randn_like(parameter) * spread)
    return model


@pytest.fixture(params=DEVICES)
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU that torch can use")
    return request.param


def relative(found, exact):
    return (found.double() - exact.double()).norm().item() / exact.double().norm().item()


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_prompt_and_steps_give_the_models_logits(made, device, dtype):
    """The prompt's last logits, then each step's, against the model over the whole sequence."""
    exact_model = copy.deepcopy(made).to(device, torch.float64)
    if made.config.model_type == "llama":  # its norms compute in float32 whatever comes in
        exact_model = copy.deepcopy(made).to(device)
    theirs, ours = made.to(device, dtype), fusedops.convert(made.to(device, dtype))
    ids = torch.randint(211, (3, 17), device=device)
    workspace = ours.workspace(3, 24)
    for end in range(11, 17):
        new = ids[:, :end] if end == 11 else ids[:, end - 1 : end]
        found = ours(new, workspace)
        with torch.no_grad():
            exact = exact_model(ids[:, :end]).logits[:, -1]
            usual = theirs(ids[:, :end]).logits[:, -1]
        assert found.shape == exact.shape
        # As near the truth as the unfused model is, or a little farther: sums in another order.
        bound = 2e-5 if dtype == torch.float32 else 1.5 * relative(usual, exact) + 1e-3
        assert relative(found, exact) < bound


@every
def test_generate_is_the_models_greedy_choice(made, device):
    model = made.to(device)
    ids = torch.randint(211, (2, 9), device=device)
    found = fusedops.convert(model).generate(ids, 12)
    for at in range(9, 21):
        with torch.no_grad():
            logits = model(found[:, :at]).logits[:, -1]
        best, chosen = logits.max(-1).values, logits.gather(-1, found[:, at : at + 1])[:, 0]
        assert torch.all(best - chosen <= 1e-3 * logits.abs().amax())


@every
def test_a_prompt_of_one_token(made, device):
    model = made.to(device)
    found = fusedops.convert(model).generate(torch.randint(211, (2, 1), device=device), 3)
    assert found.shape == (2, 4)
    with torch.no_grad():
        logits = model(found[:, :3]).logits[:, -1]
    assert torch.equal(logits.argmax(-1), found[:, 3])


def test_more_tokens_than_positions_are_refused():
    model = fusedops.convert(model_of("gpt2"))
    with pytest.raises(ValueError, match=r"workspace: tokens: expected at most 64 .*found 65"):
        model.workspace(1, 65)


@pytest.mark.parametrize(
    ("kind", "change", "says"),
    [
        ("gpt2", {"activation_function": "tanh"}, "activation_function='tanh' is not provided"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "inverse_layer_idx=True is not"),
        ("opt", {"do_layer_norm_before": False}, "do_layer_norm_before=False is not provided"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act='gelu' is not provided"),
        ("llama", {"rope_parameters": {"rope_type": "llama3"}}, "rope_type='llama3' is not"),
    ],
)
def test_what_the_decoder_cannot_compute_is_refused(kind, change, says):
    model = model_of(kind)
    for name, value in change.items():
        setattr(model.config, name, value)
    with pytest.raises(ValueError, match=says):
        fusedops.convert(model)


def test_another_kind_of_model_is_refused():
    with pytest.raises(ValueError, match="expected one of Hugging Face's gpt2, llama, opt models"):
        fusedops.convert(torch.nn.Linear(2, 2))
