"""Rounds over a Grid without processes: who is believed, who is left out, and what is written."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from fake_grid import Away, FakeGrid, Liar, Node, Run, Silent, Unreadable
from flwr.app import ConfigRecord, Message, RecordDict
from msgspec.structs import replace
from sites import memory_folder

from fedforget.parties.attempts import failures_since
from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.disclosure import preset
from fedforget.parties.folders import write_private
from fedforget.parties.round_progress import STAGES, Seen
from fedforget.parties.round_progress import read_progress as read_round
from fedforget.parties.server_party import open_server
from fedforget.protocol.errors import Finding, RoundAbortedError
from fedforget.protocol.keys import AgreementKey
from fedforget.protocol.messages import Letter, Masked, Payload, Present, Who, seal
from fedforget.runtime import directories
from fedforget.runtime.flower import server_app
from fedforget.runtime.flower.envelope import RunKey, seal_for
from fedforget.runtime.flower.replies import Answered, Refused, Taken, letter, parse
from fedforget.runtime.flower.trial import make_federation

NAMES = ("client-0", "client-1", "client-2", "client-3")
DEADLINE = 1.0


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    """Four clients, one of which may be away: before the first round, and after it."""
    with tempfile.TemporaryDirectory(prefix="ff-", dir=memory_folder()) as folder:
        root = Path(folder) / "fresh"
        root.mkdir(mode=0o700)
        rng = np.random.default_rng(1)
        values, owners = rng.uniform(0, 1, (80, 2)), np.arange(80) % 4
        make_federation(root, values, owners, n_clusters=2, deadline=DEADLINE)
        shutil.copytree(root, Path(folder) / "counted")
        World(Path(folder) / "counted").run_in_process()
        yield Path(folder)


class World:
    """A federation in directories, its nodes 1 to 4, and a twin that runs without Flower."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.server = root / "server"
        self.nodes = {number: Node(self.client(name)) for number, name in enumerate(NAMES, 1)}
        self.grid = FakeGrid(dict(self.nodes))

    def client(self, name: str) -> Path:
        return self.root / "clients" / name

    def run(self, **config: object) -> Run:
        return Run(self.server, self.grid, **config)

    def forget(self, name: str, *ids: int) -> None:
        with open_client(self.client(name)) as client:
            client.forget(list(ids))

    def twin(self) -> World:
        root = self.root.parent / "twin"
        shutil.copytree(self.root, root)
        return World(root)

    def run_in_process(self, names: tuple[str, ...] = NAMES) -> dict[str, object]:
        return directories.run(self.server, [self.client(name) for name in names])

    def answer_of(self, name: str, question: bytes) -> bytes | None:
        with open_client(self.client(name)) as client:
            return client.receive(question)


@pytest.fixture
def place(flower: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(server_app, "POLL_SECONDS", 0.01)
    with tempfile.TemporaryDirectory(prefix="ff-", dir=memory_folder()) as folder:
        yield Path(folder)


@pytest.fixture
def fresh(made: Path, place: Path) -> World:
    """Before the first round."""
    shutil.copytree(made / "fresh", place / "root")
    return World(place / "root")


@pytest.fixture
def world(made: Path, place: Path) -> World:
    """After the first round, which counted everybody."""
    shutil.copytree(made / "counted", place / "root")
    return World(place / "root")


# -- rounds that go well -----------------------------------------------------------------------


def test_rounds_give_the_model_of_the_in_process_runtime(fresh: World) -> None:
    twin = fresh.twin()
    first = fresh.run()
    assert first.committed["model"] == twin.run_in_process()["model"]
    fresh.forget("client-0", 0, 4, 8)
    twin.forget("client-0", 0, 4, 8)
    second = fresh.run()
    assert second.committed["kind"] == "delta"
    assert second.committed["model"] == twin.run_in_process()["model"]
    assert [one["event"] for one in second.events] == [
        "begin",
        *["stage"] * 7,
        "committed",
        "end",
    ]
    stages = [one["stage"] for one in second.of("stage")]
    assert stages[0] == "who"
    assert stages[1:] == [
        "advertise", "share", "masked input", "consistency", "unmask", "commit"
    ]  # fmt: skip
    assert {one["round"] for one in second.of("stage")} == {2}
    with open_client(fresh.client("client-0")) as client:
        assert len(client.store.receipts()) == 1
        assert client.audit().passed
    with open_server(fresh.server) as server:
        assert server.audit()["problems"] == []


def test_a_trial_has_rules_and_a_policy_stays_at_its_site(fresh: World) -> None:
    with open_server(fresh.server) as server:
        rules = server.federation.disclosure
    assert rules == preset("omop", 0.01)
    fresh.run()
    with open_server(fresh.server) as server:
        counts = server.aggregate().counts()
    assert len(counts)
    assert (counts >= 5).all()
    assert (counts % 5 == 0).all()
    # Held back for an approval, which nobody is told of; then approved.
    policy = fresh.client("client-0") / "policy.toml"
    write_private(policy, b"approval = true\n")
    fresh.forget("client-0", *range(0, 32, 4))
    before = fresh.run().committed
    assert before["changed_bins"] == 0
    assert "client-0" in before["participants"]
    with open_client(fresh.client("client-0")) as client:
        client.approve(client.preview().digest)
    assert fresh.run().committed["changed_bins"] > 0
    with open_client(fresh.client("client-0")) as client:
        assert len(client.store.receipts()) == 1
    # What a policy forbids is for the site's own log.
    write_private(policy, b"least_members = 77\n")
    run = fresh.run()
    assert "client-0" not in run.committed["participants"]
    told = json.dumps(run.events)
    assert "policy" not in told.lower()
    assert "least_members" not in told
    assert all("77" not in str(event.get("text", "")) for event in run.events)


def test_everybody_is_asked_once_in_a_run(fresh: World) -> None:
    run = fresh.run(rounds=3)
    assert [one["round"] for one in run.of("committed")] == [1, 2, 3]
    assert fresh.grid.count("who") == 4
    assert fresh.grid.count("deliver") == 3 * 6 * 4
    assert [one["stage"] for one in run.of("stage")].count("who") == 1


def test_who_was_missing_is_asked_again_and_nobody_else(world: World) -> None:
    back = world.grid.nodes.pop(4)
    asked = world.grid.count("who")

    def come_back(message: Message) -> None:
        world.grid.nodes[4] = back

    world.grid.before = come_back
    # It comes back while the others are asked; the first round has to wait for it in any case.
    run = world.run(rounds=2)
    assert world.grid.count("who") - asked == 4
    assert [len(one["participants"]) for one in run.of("committed")] == [4, 4]


def test_who_comes_back_between_two_rounds_of_a_run_takes_part(world: World) -> None:
    back, asked = world.grid.nodes.pop(4), world.grid.count("who")

    def come_back(message: Message) -> None:
        if message.metadata.message_type == "query.deliver":
            world.grid.nodes[4] = back

    world.grid.before = come_back
    run = world.run(rounds=3)
    assert [len(one["participants"]) for one in run.of("committed")] == [3, 4, 4]
    assert run.of("missing") == [run.of("missing")[0]]
    assert run.of("missing")[0]["clients"] == ["client-3"]
    assert world.grid.count("who") - asked == 3 + 1


def test_after_a_new_list_everybody_is_asked_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:

    def suspend(seconds: float) -> None:
        if seconds == 77.0:
            with open_server(world.server) as server:
                document = server.enrol(suspend=["client-3"])
            for name in NAMES:
                with open_client(world.client(name)) as client:
                    client.join(None, document)

    monkeypatch.setattr(server_app.time, "sleep", suspend)
    asked = world.grid.count("who")
    run = world.run(rounds=2, pause=77.0)
    assert [len(one["participants"]) for one in run.of("committed")] == [4, 3]
    assert world.grid.count("who") - asked == 8


def test_a_question_does_not_disturb_an_attempt(world: World) -> None:
    """Of whichever run it is: every run has a memory of its own at a node."""
    with open_server(world.server) as server:
        federation, identity = server.protocol.federation, server.identity
    who = Who(federation.identifier, federation.configuration, bytes(16), 1, 1)
    content = {
        "data": seal(who, identity),
        "key": RunKey.fresh(identity, federation.identifier).offer,
    }
    asked = []

    def ask(message: Message) -> None:
        if message.metadata.message_type == "query.deliver":
            question = Message(
                RecordDict({"letter": ConfigRecord(dict(content))}),
                dst_node_id=message.metadata.dst_node_id,
                message_type="query.who",
            )
            question.metadata.__dict__["_message_id"] = "question"
            reply = Node(world.nodes[message.metadata.dst_node_id].folder)(question)
            assert reply is not None
            asked.append(parse(reply.content))

    world.grid.before = ask
    assert world.run().committed["participants"] == list(NAMES)
    assert len(asked) == 6 * 4
    assert all(isinstance(reply, Answered) for reply in asked)


# -- nodes that are not there, or come back -----------------------------------------------------


def test_a_member_that_is_away_is_left_out_and_comes_back(world: World) -> None:
    away, world.grid.nodes[2] = world.grid.nodes[2], Away()
    run = world.run()
    assert run.committed["participants"] == ["client-0", "client-2", "client-3"]
    assert run.of("missing")[0]["clients"] == ["client-1"]
    world.grid.nodes[2] = away
    assert world.run().committed["participants"] == list(NAMES)


def test_a_silent_node_is_waited_for_once_and_noted_once(world: World) -> None:
    silent, world.grid.nodes[3] = world.grid.nodes[3], Silent()
    run = world.run()
    assert "client-2" not in run.committed["participants"]
    assert run.refusals == [("node 3", "no answer")]
    world.grid.nodes[3] = silent
    assert world.run().committed["participants"] == list(NAMES)


@pytest.mark.parametrize(
    ("stage", "counted"),
    [("Roster", False), ("Delivery", False), ("Survivors", True), ("Unmask", True)],
)
def test_a_node_is_restarted_between_two_stages(world: World, stage: str, counted: bool) -> None:
    """Its attempt is gone; it refuses the rest, and the others go on."""
    twin = world.twin()
    stages = ["Open", "Roster", "Delivery", "Survivors", "Unmask"]

    def restart(message: Message) -> None:
        node = world.nodes[4]
        if message.metadata.dst_node_id == 4 and node.seen.count("query.deliver") % 6 == (
            stages.index(stage)
        ):
            node.restart()

    world.grid.before = restart
    run = world.run()
    assert ("client-3" in run.committed["participants"]) == counted
    assert ("client-3", "OutOfOrderError") in run.refusals
    assert run.committed["model"] == twin.run_in_process()["model"]
    world.grid.before = lambda message: None
    assert world.run().committed["participants"] == list(NAMES)
    with open_client(world.client("client-3")) as client:
        assert client.audit().passed


def test_too_few_are_left_and_the_next_run_succeeds(fresh: World) -> None:
    gone = {number: fresh.grid.nodes.pop(number) for number in (3, 4)}
    run = fresh.run()
    assert run.error is not None
    assert "client-2 and 1 more are missing" in run.error
    (aborted,) = run.of("aborted")
    assert aborted["findings"] == []
    assert (aborted["missing"], aborted["person"]) == (["client-2", "client-3"], False)
    assert run.events[-1] == aborted
    (failure,) = failures_since(fresh.server, None)
    assert failure["cause"].startswith("client-2 and 1 more are missing")
    fresh.grid.nodes.update(gone)
    assert fresh.run().committed["round"] == 1


# -- nodes that lie ------------------------------------------------------------------------------


def present_to(world: World, name: str) -> bytes:
    """A member's signed answer to a question of this server with another nonce."""
    with open_server(world.server) as server:
        federation = server.protocol.federation
        question = Who(federation.identifier, federation.configuration, bytes(16), 1, 0)
        answer = world.answer_of(name, seal(question, server.identity))
    assert answer is not None
    return answer


class Impostor(Node):
    """Passes the server's question on to another member's directory, or answers what it likes."""

    def __init__(self, folder: Path, answer: Callable[[bytes], bytes]) -> None:
        super().__init__(folder)
        self.answer = answer

    def __call__(self, message: Message) -> Message | None:
        self.seen.append(message.metadata.message_type)
        content = message.content["letter"]
        sealed = seal_for(AgreementKey(content["key"][:32]), self.answer(content["data"]))
        record = ConfigRecord(dict(letter(Answered(sealed))))
        return Message(RecordDict({"letter": record}), reply_to=message)


def test_a_node_that_answers_with_anothers_name_is_nobody(world: World) -> None:
    """The stranger has keys of its own, and signs as client-0 with them."""
    stranger = world.root.parent / "elsewhere"
    values = np.random.default_rng(0).uniform(0, 1, (30, 2))
    make_federation(stranger, values, np.arange(30) % 3, n_clusters=2)
    with open_client(stranger / "clients" / "client-0") as client:
        identity = client.identity
    truth = Letter(present_to(world, "client-0")).content
    assert isinstance(truth, Present)

    def lie(question: bytes) -> bytes:
        who = Letter(question).content
        assert isinstance(who, Who)
        return seal(replace(truth, nonce=who.nonce), identity)

    impostor = Impostor(stranger, lie)
    world.grid.nodes = {9: impostor, **world.nodes}
    run = world.run(rounds=2)
    assert run.committed["participants"] == list(NAMES)
    assert run.refusals == [("node 9", "BadSignatureError")]
    assert impostor.seen == ["query.who"]


def test_a_replayed_answer_binds_nobody(world: World) -> None:
    old = present_to(world, "client-1")
    impostor = Impostor(world.root, lambda question: old)
    world.grid.nodes = {9: impostor, **world.nodes}
    run = world.run()
    assert run.committed["participants"] == list(NAMES)
    assert run.refusals == [("node 9", "OutOfOrderError")]
    assert impostor.seen == ["query.who"]


def test_a_client_of_another_federation_is_left_out(world: World) -> None:
    stranger = world.root.parent / "elsewhere"
    values = np.random.default_rng(0).uniform(0, 1, (30, 2))
    make_federation(stranger, values, np.arange(30) % 3, n_clusters=2)
    world.grid.nodes = {9: Node(stranger / "clients" / "client-0"), **world.nodes}
    run = world.run()
    assert run.committed["participants"] == list(NAMES)
    assert run.refusals == [("node 9", "BadSignatureError")]
    assert "not the server of the client's federation file" in run.of("refused")[0]["text"]


GARBAGE = {
    "refused as bytes": {"letter": {"refused": b"\xff"}},
    "the reply of version 1": {"letter": {"name": "client-0"}},
    "no letter": {"something": {"reply": b""}},
    "nothing at all": {},
    "an empty letter": {"letter": {}},
    "a number": {"letter": {"reply": 7}},
    "text": {"letter": {"reply": "answered"}},
    "many numbers": {"letter": {"reply": [1.5] * 1000}},
    "no msgpack": {"letter": {"reply": b"\xff\xff"}},
    "bytes under a wrong tag": {"letter": {"reply": b"\x81\xa4type\xa5other"}},
    "sealed for nobody": {"letter": letter(Answered(b"x" * 100))},
    "sealed too short": {"letter": letter(Answered(b"x"))},
    "sealed with a key of low order": {"letter": letter(Answered(bytes(100)))},
    "taken": {"letter": letter(Taken())},
    "what only Flower says": {"letter": letter(Refused("not connected", "Flower says: away"))},
    "a huge text": {"letter": letter(Refused("E" * 10**6, "\x1b[2J" * 10**6))},
    "many bytes": {"letter": {"reply": b"\x93" * 10**7}},
}


@pytest.mark.parametrize("what", GARBAGE)
def test_nonsense_is_noted_once_and_fails_no_run(world: World, what: str) -> None:
    liar, honest = Liar(**GARBAGE[what]), world.nodes[4]
    # It is asked first, and later takes the place of a member in the middle of a round.
    world.grid.nodes = {9: liar, **world.nodes}

    def take_over(message: Message) -> None:
        if honest.seen.count("query.deliver") % 6 == 2:
            world.grid.nodes[4] = liar

    world.grid.before = take_over
    run = world.run()
    assert run.committed["participants"] == list(NAMES[:3])
    # Once before the round, and from the middle of the round on in the member's place.
    assert liar.asked <= 1 + 4
    names = [name for name, _ in run.refusals]
    # Having nothing to answer is no fault in a round: whoever says so is taken for lost.
    assert names == (["node 9"] if what == "taken" else ["node 9", "client-3"])
    assert all(len(one["text"]) <= 500 and len(one["error"]) <= 500 for one in run.of("refused"))
    assert all(text.isprintable() for one in run.of("refused") for text in map(str, one.values()))


def test_a_reply_that_flower_cannot_read_is_its_nodes_fault_alone(world: World) -> None:
    world.grid.nodes = {9: Unreadable(), **world.nodes}
    run = world.run()
    assert run.committed["participants"] == list(NAMES)
    assert run.refusals == [("node 9", "MalformedError")]
    world.grid.nodes = {**world.nodes, 1: Unreadable()}
    assert world.run().committed["participants"] == list(NAMES[1:])


@pytest.mark.parametrize("older", [False, True])
def test_a_second_copy_of_a_directory_is_left_out(world: World, older: bool) -> None:
    copy = world.root.parent / "copy"
    if older:
        shutil.copytree(world.client("client-2"), copy)
        world.run()
    else:
        world.run()
        shutil.copytree(world.client("client-2"), copy)
    second = Node(copy)
    world.grid.nodes = {1: world.nodes[1], 3: world.nodes[3], 9: second, **world.nodes}
    run = world.run()
    assert run.committed["participants"] == list(NAMES)
    assert run.refusals == [("node 9", "OutOfOrderError")]
    assert "copy of it is in use" in run.of("refused")[0]["text"]
    assert second.seen == ["query.who"]


# -- full rounds, and what was restored ----------------------------------------------------------


def restore(world: World, name: str) -> Callable[[], None]:
    """Take a backup now; the result puts it back."""
    backup = world.root.parent / f"backup-{name}"
    folder = world.server if name == "server" else world.client(name)
    shutil.copytree(folder, backup)

    def put_back() -> None:
        progress = folder / server_app.PROGRESS
        lines = progress.read_bytes() if progress.exists() else None
        shutil.rmtree(folder)
        shutil.copytree(backup, folder)
        if lines is not None:
            progress.write_bytes(lines)
            progress.chmod(0o600)

    return put_back


def test_a_node_that_needs_a_full_round_does_not_start_one(world: World) -> None:
    put_back = restore(world, "client-1")
    world.forget("client-1", 1)
    world.run()
    put_back()
    refused = world.run()
    assert refused.committed["participants"] == ["client-0", "client-2", "client-3"]
    assert ("client-1", "OlderDirectoryError") in refused.refusals

    with open_client(world.client("client-1")) as client:
        client.recover()
    # Another one is away: with two of four, there is no round, and no full one by itself.
    away = world.grid.nodes.pop(4)
    run = world.run()
    sentence = 'client-1 needs a full round: start the run with kind="full"'
    assert run.error is not None
    assert sentence in run.error
    assert sentence in run.of("aborted")[0]["advice"][0]
    assert not run.of("committed")
    full = world.run(kind="full")
    assert full.error is not None
    assert "client-3 is missing" in full.error

    world.grid.nodes[4] = away
    on = world.run()
    assert on.committed["kind"] == "delta"
    assert "client-1" not in on.committed["participants"]
    assert sentence in on.of("advice")[0]["text"]
    last = world.run(kind="full")
    assert last.committed["participants"] == list(NAMES)
    assert last.of("advice") == []
    assert world.run().committed["participants"] == list(NAMES)


def test_a_restored_server_stops_and_recovers_by_command(world: World) -> None:
    put_back = restore(world, "server")
    world.forget("client-0", 0, 4)
    world.run(rounds=2)
    put_back()
    run = world.run()
    assert run.error is not None
    assert "it was restored from a backup" in run.error
    assert "recover=true" in run.error
    assert (run.events[-1]["event"], run.events[-1]["person"]) == ("failed", True)

    # Away from a recovery is nobody: the round after it is a full one.
    twin = world.twin()
    run = world.run(recover=True)
    assert run.committed["kind"] == "full"
    assert run.committed["round"] == 4
    (recovered,) = run.of("recovered")
    assert recovered["rounds_taken_over"] == 2
    directories.recover(twin.server, [twin.client(name) for name in NAMES])
    assert run.committed["model"] == twin.run_in_process()["model"]
    assert world.run().committed["kind"] == "delta"
    reported = 0
    for name in NAMES:
        with open_client(world.client(name)) as client:
            assert len(client.store) == (18 if name == "client-0" else 20)
            reported += client.histogram().total
    with open_server(world.server) as server:
        assert server.audit()["problems"] == []
        assert server.status()["records"] == reported


def test_a_full_round_helps_whoever_needed_it(world: World) -> None:
    with open_client(world.client("client-1")) as client:
        client.recover()
    run = world.run(recover=True, rounds=2)
    assert [one["kind"] for one in run.of("committed")] == ["full", "delta"]
    assert run.committed["participants"] == list(NAMES)
    assert run.of("advice") == []


def test_a_restored_server_learns_lost_lists(world: World) -> None:
    put_back = restore(world, "server")
    with open_server(world.server) as server:
        document = server.enrol(suspend=["client-3"])
    for name in NAMES:
        with open_client(world.client(name)) as client:
            client.join(None, document)
    put_back()
    assert "restored" in str(world.run().error)
    run = world.run(recover=True, kind="delta")
    # A full round is due, and a member that is counted is suspended.
    assert run.error is not None
    assert "client-3 is suspended" in run.error
    with open_server(world.server) as server:
        assert server.membership().epoch == 2
        document = server.enrol(resume=["client-3"])
    # Two lists since the last commit: what the others changed may show, and they accept it.
    for name in NAMES:
        with open_client(world.client(name)) as client:
            client.join(None, document, alone=name != "client-3")
    assert world.run().committed["kind"] == "full"


def test_a_claim_of_a_member_alone_stops_nothing(world: World) -> None:
    """It says that it knows a million rounds, and shows none."""
    with open_client(world.client("client-3")) as client:
        identity = client.identity
    truth = Letter(present_to(world, "client-3")).content
    assert isinstance(truth, Present)

    def boast(question: bytes) -> bytes:
        who = Letter(question).content
        if not isinstance(who, Who):
            return b"nothing"
        said = replace(truth, nonce=who.nonce, round=10**6, epoch=10**6, seen=2**53 - 1)
        return seal(replace(said, notices=(b"\xff",), lists=(b"\xff",)), identity)

    world.grid.nodes[4] = Impostor(world.root, boast)
    assert world.run().committed["participants"] == list(NAMES[:3])
    recovered = world.run(recover=True)
    # A full round needs everybody; nothing else stands against it.
    assert recovered.error is not None
    assert "client-3 is missing" in recovered.error
    world.grid.nodes[4] = world.nodes[4]
    assert world.run().committed["kind"] == "full"


# -- findings and errors -------------------------------------------------------------------------


def test_findings_are_in_the_progress_file(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member signs a vector of another length: it is named, and left out."""
    receive = ClientParty.receive

    def spoil(self: ClientParty, data: bytes) -> bytes | None:
        answer = receive(self, data)
        if answer is not None and self.name == "client-2":
            content = Letter(answer).content
            if isinstance(content, Payload) and isinstance(content.body, Masked):
                body = replace(content.body, masked_vector=b"\x00" * 24)
                answer = seal(replace(content, body=body), self.identity)
        return answer

    monkeypatch.setattr(ClientParty, "receive", spoil)
    run = world.run()
    assert "client-2" not in run.committed["participants"]
    assert any("client-2" in text for text in run.committed["findings"])
    run = world.run(kind="full")
    assert run.error is not None
    (aborted,) = run.of("aborted")
    assert ["client-2"] in [one["members"] for one in aborted["findings"]]


def test_errors_that_flower_keeps_do_not_speak_of_the_sum(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        try:
            raise ValueError("5 bins of 17")
        except ValueError as error:
            finding = Finding((), "who it was cannot be told")
            raise RoundAbortedError("the sum has 17 bins", findings=[finding]) from error

    monkeypatch.setattr(server_app, "drive", fail)
    run = world.run()
    assert run.error is not None
    assert "17" not in run.error
    assert "flower.jsonl" in run.error
    (aborted,) = run.of("aborted")
    assert "17" in aborted["reason"]
    assert aborted["findings"] == [{"members": [], "text": "who it was cannot be told"}]

    def fail_otherwise(*_: object, **__: object) -> None:
        raise ArithmeticError("the sum is 17")

    monkeypatch.setattr(server_app, "drive", fail_otherwise)
    run = world.run()
    assert run.error == "failed with ArithmeticError"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"kind": "whole"}, "kind must be one of"),
        ({"recover": "yes"}, "recover must be"),
        ({"rounds": "many"}, "must be numbers"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(
    world: World, config: dict[str, object], words: str
) -> None:
    run = world.run(**config)
    assert run.error is not None
    assert words in run.error
    assert run.events == []


def test_the_progress_file_is_its_owners_alone(world: World) -> None:
    world.run()
    assert (world.server / server_app.PROGRESS).stat().st_mode & 0o777 == 0o600


def test_a_round_over_flower_shows_where_it_stands(world: World) -> None:
    seen: list[Seen] = []

    def look(message: Message) -> None:
        found = read_round(world.server)
        assert found is not None
        seen.append(found)

    world.grid.before = look
    silent, world.grid.nodes[3] = world.grid.nodes[3], Silent()
    run = world.run()
    assert run.committed["round"] == 2
    assert read_round(world.server) is None
    assert all(one.running and one.progress.round == 2 for one in seen)
    titles = [one.progress.stage.title for one in seen if one.progress.stage is not None]
    assert list(dict.fromkeys(titles)) == list(STAGES)
    last = seen[-1].progress
    assert last.lost == {"client-2": "who"}
    assert list(last.refused) == ["node 3"]
    world.grid.nodes[3] = silent
