"""Who made a storage and what it is for, by the frames that a memory snapshot shows."""

from __future__ import annotations

import json

import pytest
from history_rows import rows
from snapshot_builder import MIB, block, entry, freed, segment, snapshot

from et_replay.formats.snapshot_frames import FRAMELESS
from et_replay.origins import MemoryClass, Origin

A = 64 * MIB
SITE = "/opt/conda/lib/python3.11/site-packages/torch"

MAIN = ("/home/me/train.py", 7, "main")
MODEL = ("/home/me/model/block.py", 41, "forward")
CALL = (f"{SITE}/nn/modules/module.py", 1751, "_call_impl")
LINEAR = (f"{SITE}/nn/modules/linear.py", 125, "forward")
APPLY = (f"{SITE}/nn/modules/module.py", 915, "_apply")
ENGINE = (f"{SITE}/autograd/graph.py", 823, "_engine_run_backward")
ADAM = (f"{SITE}/optim/adam.py", 170, "_init_group")
ALLOCATOR = (
    "??",
    0,
    "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(int)",
)
EMPTY = ("??", 0, "at::_ops::empty_memory_format::call(c10::ArrayRef<c10::SymInt>)")
ADDMM = ("??", 0, "at::_ops::addmm::call(at::Tensor const&, at::Tensor const&)")
CPP_ENGINE = ("??", 0, "torch::autograd::Engine::evaluate_function(std::shared_ptr<Node>&)")

FORWARD = [LINEAR, CALL, MODEL, CALL, MAIN]
BACKWARD = [ENGINE, MAIN]
STEP = [ADAM, MAIN]
BUILT = [APPLY, APPLY, MAIN]

FORWARD_MAKER = "model/block.py:41 forward"
MAIN_MAKER = "me/train.py:7 main"


def frames(*frames: tuple[str, int, str]) -> list[dict]:
    return [{"filename": file, "line": line, "name": name} for file, line, name in frames]


def made(number: int, stack: object, **others: object) -> dict:
    """The allocation of a MiB, the `number`th one of the segment, by frames in short or as is."""
    short = isinstance(stack, list) and all(isinstance(frame, tuple) for frame in stack)
    shown = frames(*stack) if short else stack
    return entry("alloc", A + number * MIB, MIB, frames=shown, **others)


def gone(number: int) -> list[dict]:
    return freed(A + number * MIB, MIB)


def history_of(*entries: dict) -> dict:
    """A snapshot of a history that begins with nothing; what is left at its end is not shown."""
    return snapshot([], [entry("segment_alloc", A, 20 * MIB), *entries])


@pytest.fixture
def read_one(read_history):
    """Return the origin of a storage made by such frames."""

    def read(stack: object, **others: object) -> Origin | None:
        content = history_of(made(0, stack, **others), *gone(0))
        return read_history(json.dumps(content)).origins.get(0)

    return read


@pytest.mark.parametrize(
    ("stack", "maker", "within"),
    [
        (FORWARD, FORWARD_MAKER, (MAIN_MAKER,)),
        ([ALLOCATOR, EMPTY, ADDMM, *FORWARD], f"aten::addmm at {FORWARD_MAKER}", (MAIN_MAKER,)),
        ([ALLOCATOR, EMPTY, MAIN], f"aten::empty_memory_format at {MAIN_MAKER}", ()),
        ([("??", 0, "at::_ops::add__Tensor::call(int)"), MAIN], f"aten::add_ at {MAIN_MAKER}", ()),
        ([("", 0, "aten::mm"), MAIN], f"aten::mm at {MAIN_MAKER}", ()),
        ([MAIN, ADDMM, MODEL], MAIN_MAKER, (FORWARD_MAKER,)),
        ([ADDMM, CPP_ENGINE], "aten::addmm", ()),
        ([ADDMM, ADAM], "aten::addmm at optim/adam.py:170 _init_group", ()),
        ([ADAM], "optim/adam.py:170 _init_group", ()),
        ([ALLOCATOR, ("??", 0, "at::native::mm(int)")], "at::native::mm(int)", ()),
        ([ALLOCATOR], ALLOCATOR[2], ()),
        ([("torch/nn/functional.py", 3, "linear"), MAIN], MAIN_MAKER, ()),
        ([("C:\\me\\model\\net.py", 3, "go")], "model/net.py:3 go", ()),
        ([("/home/torch/train.py", 3, "go"), ADAM], "torch/train.py:3 go", ()),
        (
            [("<frozen runpy>", 88, "_run_code"), ("<stdin>", 1, "<module>")],
            "<stdin>:1 <module>",
            (),
        ),
    ],
)
def test_maker_is_the_operator_and_the_innermost_frame_of_the_program(
    read_one, stack, maker, within
):
    origin = read_one(stack)

    assert (origin.maker, origin.within) == (maker, within)


def test_within_are_the_eight_nearest_frames_and_then_what_the_user_noted(read_one):
    deep = [("/me/a/f.py", line, "f") for line in range(1, 13)]

    origin = read_one(deep, user_metadata="epoch 3")

    assert origin.maker == "a/f.py:1 f"
    assert origin.within == (*(f"a/f.py:{line} f" for line in range(9, 1, -1)), "epoch 3")


@pytest.mark.parametrize(
    ("category", "expected"),
    [
        ("PARAMETER", MemoryClass.WEIGHT),
        ("GRADIENT", MemoryClass.GRADIENT),
        ("activation", MemoryClass.ACTIVATION),
        ("Category.OPTIMIZER_STATE", MemoryClass.OPTIMIZER_STATE),
        ("INPUT", MemoryClass.INPUT),
        ("TEMPORARY", MemoryClass.TEMPORARY),
        ("AUTOGRAD_DETAIL", MemoryClass.UNKNOWN),
        ("unknown", MemoryClass.UNKNOWN),
        (["PARAMETER"], MemoryClass.UNKNOWN),
    ],
)
def test_recorded_category_is_the_class(read_one, category, expected):
    assert read_one([MAIN], category=category) == Origin(MAIN_MAKER, (), expected)


def test_category_or_metadata_is_kept_without_frames(read_one):
    assert read_one([], category="INPUT") == Origin("not recorded", (), MemoryClass.INPUT)
    assert read_one(None, user_metadata="warm-up") == Origin("not recorded", ("warm-up",))
    assert read_one([], category="unknown") is None


def test_class_follows_from_the_phase_and_from_what_the_storage_outlives(read_history):
    history = read_history(
        history_of(
            made(0, BUILT),
            made(1, FORWARD),
            made(2, FORWARD),
            *gone(2),
            made(3, BACKWARD),
            made(4, [ADDMM, CPP_ENGINE]),
            *gone(4),
            *gone(1),
            made(5, STEP),
            made(6, STEP),
            *gone(6),
            *gone(3),
            made(7, [MAIN]),
            made(8, [CPP_ENGINE]),
            made(9, FORWARD),
        )
    )

    classes = [history.origins[number].memory_class for number in range(10)]
    assert classes == [
        MemoryClass.WEIGHT,
        MemoryClass.ACTIVATION,
        MemoryClass.TEMPORARY,
        MemoryClass.GRADIENT,  # freed behind an optimizer's allocation
        MemoryClass.TEMPORARY,
        MemoryClass.OPTIMIZER_STATE,
        MemoryClass.TEMPORARY,
        MemoryClass.UNKNOWN,
        MemoryClass.GRADIENT,  # lives to the end
        MemoryClass.ACTIVATION,  # never freed
    ]
    assert history.class_rule.startswith("The recorded category counts where there is one; else")


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ((f"{SITE}/nn/modules/linear.py", 106, "__init__"), MemoryClass.WEIGHT),
        ((f"{SITE}/nn/parameter.py", 40, "__new__"), MemoryClass.WEIGHT),
        (("/home/me/load.py", 3, "Net.load_state_dict"), MemoryClass.WEIGHT),
        ((f"{SITE}/optim/optimizer.py", 9, "load_state_dict"), MemoryClass.TEMPORARY),
        ((f"{SITE}/autograd/function.py", 575, "apply"), MemoryClass.UNKNOWN),
        (("/home/me/net.py", 3, "__init__"), MemoryClass.UNKNOWN),
        (("/home/me/optim/sgd.py", 3, "run"), MemoryClass.UNKNOWN),
    ],
)
def test_frame_tells_its_class(read_one, frame, expected):
    assert read_one([frame]).memory_class is expected


def test_innermost_frame_that_tells_decides(read_history):
    recomputed = [*FORWARD[:4], *BACKWARD]

    history = read_history(history_of(made(0, recomputed), made(1, BACKWARD), *gone(0)))

    assert history.origins[0].memory_class is MemoryClass.ACTIVATION


@pytest.mark.parametrize("oldest", [False, True], ids=["frames", "history"])
def test_block_at_the_start_has_the_frames_that_the_state_at_the_end_shows(read_history, oldest):
    shown = {"history": [{"frames": frames(*BUILT)}]} if oldest else {"frames": frames(*BUILT)}
    segments = [segment(A, {**block(MIB), **shown}, block(19 * MIB, "inactive"))]
    used = [made(1, FORWARD), *gone(1)]

    for trace, origins in ([], 1), (used, 2):
        history = read_history(snapshot(segments, trace))

        assert len(history.origins) == origins
        assert history.origins[0] == Origin(MAIN_MAKER, (), MemoryClass.WEIGHT)


def test_block_that_the_history_shows_without_frames_takes_those_of_the_state(read_history):
    blocks = ({**block(MIB), "frames": frames(*BUILT)}, block(19 * MIB, "inactive"))
    trace = [entry("segment_alloc", A, 20 * MIB), made(0, []), *gone(0), made(0, [])]

    history = read_history(snapshot([segment(A, *blocks)], trace))

    assert history.origins == {1: Origin(MAIN_MAKER, (), MemoryClass.WEIGHT)}


def test_frames_of_the_state_are_not_those_of_an_earlier_block_at_the_address(read_history):
    blocks = ({**block(MIB), "frames": frames(*BUILT)}, block(19 * MIB, "inactive"))
    trace = [*gone(0), made(0, FORWARD), made(1, []), *gone(1)]

    history = read_history(snapshot([segment(A, *blocks)], trace))

    assert [(number, origin.maker) for number, origin in history.origins.items()] == [
        (1, FORWARD_MAKER),
        (2, FRAMELESS.maker),
    ]


def test_allocation_without_frames_while_others_have_some_is_of_a_backward_pass(read_history):
    history = read_history(history_of(made(0, FORWARD), made(1, []), made(2, []), *gone(2)))

    assert history.origins[1] == Origin(FRAMELESS.maker, (), MemoryClass.GRADIENT)
    assert history.origins[2] == Origin(FRAMELESS.maker, (), MemoryClass.TEMPORARY)


def test_where_no_allocation_has_frames_none_is_known(read_history):
    assert read_history(history_of(made(0, []), made(1, []))).origins == {}


def test_equal_origins_are_one_object(read_history):
    entries = [made(number, FORWARD) for number in range(9)]
    hidden = [*FORWARD[:1], ("", 0, "??"), *FORWARD[1:]]

    history = read_history(json.dumps(history_of(*entries, made(9, hidden))))

    assert len(history.origins) == 10
    assert len({id(origin) for origin in history.origins.values()}) == 1


def test_snapshot_without_frames_has_no_origins(read_history):
    history = read_history(history_of(made(0, []), entry("alloc", A + MIB, MIB), *gone(0)))

    assert (history.origins, history.class_rule) == ({}, "")


@pytest.mark.parametrize(
    "shown",
    [
        *("frames", 5, True, {"filename": "a.py"}, [[]], [None], [[["a.py"]]], ["a.py"], [{}]),
        [{"filename": 5, "name": 6, "line": "7"}],
        [{"filename": ["a.py"], "name": {"b": 1}, "line": None}],
        [{"filename": "??", "name": "??", "line": 0}],
        [{"filename": None, "name": None, "line": None}],
        [{"name": ""}],
    ],
    ids=str,
)
def test_unreadable_frames_lose_no_event(read_history, shown):
    history = read_history(json.dumps(history_of(made(0, shown), *gone(0), made(1, [MAIN]))))

    assert [row[:3] for row in rows(history)] == [
        ("ALLOC", 0, MIB),
        ("FREE", 0, MIB),
        ("ALLOC", 1, MIB),
    ]
    assert history.origins == {1: Origin(MAIN_MAKER)}


def test_readable_frames_count_beside_unreadable_ones(read_one):
    half = {"filename": "/me/a/b.py"}
    numbered = {"filename": "/me/a/c.py", "name": "go", "line": 10**20}
    odd = {"filename": "/me/a/d.py", "name": ["go"], "line": -4}

    origin = read_one([None, half, 3, numbered, odd, *frames(MAIN)], user_metadata=7)

    assert origin == Origin("a/b.py", (MAIN_MAKER, "a/d.py", "a/c.py go"))


def test_pickle_may_hold_what_json_cannot(read_history):
    nested: object = "x"
    for _ in range(50):
        nested = (nested,)
    odd = [
        {"filename": nested, "name": 1.5, "line": 1.5},
        {"filename": "/me/a/b.py", "name": "go", "line": 10**500},
    ]

    history = read_history(history_of(made(0, odd, category=(1,), user_metadata=(1,))))

    assert history.origins == {0: Origin("a/b.py go")}


@pytest.mark.parametrize("file", ["/me/a/b.py", "??"])
def test_names_are_cut_and_hold_no_control_characters(read_one, file):
    long = read_one([(file, 1, "f" * 10_000)], user_metadata="m" * 10_000)
    odd = read_one([(file, 1, "f\x1b[31m\n\u202eg")], user_metadata="a\nb")

    for text in (long.maker, *long.within):
        assert len(text) == 120
        assert text.endswith("…")
    assert odd.maker.endswith("f\ufffd[31m\ufffd\ufffdg")
    assert odd.within == ("a\ufffdb",)


def test_long_stack_that_a_pickle_repeats_is_read_once(read_history):
    shared = frames(*[MAIN] * 20_000)
    entries = [each for _ in range(2000) for each in (made(0, shared), *gone(0))]

    history = read_history(history_of(*entries))

    assert len(history.origins) == 2000
    assert history.origins[0] == Origin(MAIN_MAKER, (MAIN_MAKER,) * 8)
