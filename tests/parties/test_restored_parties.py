"""Backups that are restored: what was forgotten stays forgotten, and rounds go on."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from party_world import BOUNDS, FIVE, World, federation_file, table, values_of, write_npz

from fedforget import FederatedKMeans
from fedforget.errors import FedforgetError
from fedforget.estimators.parameters import root_secret
from fedforget.parties import receipts
from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.errors import ClientError
from fedforget.parties.folders import FolderError
from fedforget.parties.server_party import ServerParty, open_server
from fedforget.parties.store import EncodedIds
from fedforget.parties.suppression import SuppressionList
from fedforget.protocol.errors import ForkError

RESTORED = r"it was restored from a backup\. Run `server recover`"
GONE = ["A-1", "A-2", "A-3"]


def fresh_digest(kept: dict[str, list[int]]) -> str:
    """The model of the estimator, fitted on the records that are kept."""
    X, clients, ids = [], [], []
    for number, name in enumerate(FIVE):
        values = values_of(20, number)
        for row in kept[name]:
            X.append(values[row])
            clients.append(name)
            ids.append(f"{name[0].upper()}-{row}")
    estimator = FederatedKMeans(
        2, bounds=BOUNDS, step=0.01, local_clusters=4, n_init=2, max_iter=50, random_state=7,
        scale="box",
    )  # fmt: skip
    return estimator.fit(np.array(X), clients=np.array(clients), ids=np.array(ids)).model_digest_


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Five members with a committed round, and the secrets of the estimator above."""
    root = root_secret(7)
    seed = root.derive("public seed").data.hex()
    made = World(tmp_path, FIVE).set_up(federation_file(public_seed=seed))
    for name in FIVE:
        secret = root.derive("client", b"s" + name.encode()).data
        (made.client(name) / "records.key").write_bytes(secret)
    made.fill(20)
    made.round()
    return made


def kept(*gone: str) -> dict[str, list[int]]:
    return {
        name: [row for row in range(20) if f"{name[0].upper()}-{row}" not in gone] for name in FIVE
    }


# -- a client ----------------------------------------------------------------------------------


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_client_restored_from_a_backup(world: World, elsewhere: bool) -> None:
    """With the list of forgotten ids in another place, the erased patients stay erased."""
    if elsewhere:
        with open_client(world.client("aarhus")) as party:
            party.suppression.set(path=world.folder / "safe.sqlite")
    world.back_up("aarhus")
    world.forget("aarhus", GONE)
    done = world.round()
    assert done["model"] == fresh_digest(kept(*GONE))
    world.restore("aarhus")
    assert set(GONE) <= world.held("aarhus")
    done = world.round()
    assert done["participants"] == list(FIVE[1:])
    assert "this directory is older than round 2" in done["refused"]["aarhus"]
    assert "client recover" in done["refused"]["aarhus"]
    assert done["model"] == fresh_digest(kept(*GONE)), "the erasure holds"
    with open_client(world.client("aarhus")) as party:
        problems = party.audit().problems
        named = "3 records are held though they were forgotten: run client recover"
        assert (named in problems) == elsewhere
        again = party.recover()
    assert (again["records_forgotten_again"], again["last_round_known"]) == (3 * elsewhere, 1)
    assert (again["salt"] is not None) == elsewhere
    # It does not know what is counted of it: a change is refused, a full round mends it.
    done = world.round()
    assert "a full round is needed" in done["refused"]["aarhus"]
    assert done["model"] == fresh_digest(kept(*GONE))
    done = world.round(kind="full")
    assert done["participants"] == list(FIVE)
    if elsewhere:
        assert done["model"] == fresh_digest(kept(*GONE))
    else:
        # The list was restored as well: nobody remembers, and the operator must.
        assert done["model"] == fresh_digest(kept())
        world.forget("aarhus", GONE)
        assert world.round()["model"] == fresh_digest(kept(*GONE))
    world.check_sums()
    world.check_audits()


@pytest.mark.parametrize("erases", ["forget", "sync", "leave"])
def test_a_kill_before_the_list_was_settled_and_then_a_restore(
    world: World, monkeypatch: pytest.MonkeyPatch, erases: str
) -> None:
    """The restored store knows nothing of the erasure: the list must not forget it, too."""
    with open_client(world.client("aarhus")) as party:
        party.suppression.set(path=world.folder / "safe.sqlite")
    world.back_up("aarhus")
    kept = [row for row in range(20) if f"A-{row}" not in GONE]
    export = write_npz(
        world.folder / "export.npz", [f"A-{row}" for row in kept], values_of(20, 0)[kept]
    )
    with open_client(world.client("aarhus")) as party, monkeypatch.context() as patch:
        patch.setattr(SuppressionList, "settle", _killed)
        erase = {
            "forget": lambda: party.forget(GONE),
            "sync": lambda: party.sync(table(export)),
            "leave": lambda: party.leave(),
        }
        with pytest.raises(KeyboardInterrupt):
            erase[erases]()
    gone = set(GONE) if erases != "leave" else {f"A-{row}" for row in range(20)}
    assert not gone & world.held("aarhus")
    world.restore("aarhus")
    with open_client(world.client("aarhus")) as party:
        assert set(party.held_though_forgotten()) == gone
        assert party.status()["ids_suppressed"] == len(gone)
        assert party.recover()["records_forgotten_again"] == len(gone)
        assert party.audit().passed
    assert not gone & world.held("aarhus")


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_kill_before_the_store_has_erased_anything(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is not an older one, and says that nothing was erased."""
    with open_client(world.client("aarhus")) as party:
        party.suppression.set(path=world.folder / "safe.sqlite")
    begin = SuppressionList.begin_forgetting

    def begin_and_die(self: SuppressionList, ids: EncodedIds, request: str) -> None:
        begin(self, ids, request)
        raise KeyboardInterrupt

    with open_client(world.client("aarhus")) as party, monkeypatch.context() as patch:
        patch.setattr(SuppressionList, "begin_forgetting", begin_and_die)
        patch.setattr(SuppressionList, "settle", _killed)
        with pytest.raises(KeyboardInterrupt):
            party.forget(GONE)
    assert set(GONE) <= world.held("aarhus")
    with open_client(world.client("aarhus")) as party:
        assert party.status()["ids_suppressed"] == 0
        assert party.audit().passed


def test_nothing_is_imported_into_a_directory_that_was_restored(world: World) -> None:
    """Though the new records have nothing to do with those who were forgotten."""
    with open_client(world.client("aarhus")) as party:
        party.suppression.set(path=world.folder / "safe.sqlite")
    world.back_up("aarhus")
    world.forget("aarhus", GONE)
    world.restore("aarhus")
    export = write_npz(world.folder / "export.npz", ["N-1"], values_of(1, 99))
    with open_client(world.client("aarhus")) as party:
        for again in (False, True):
            with pytest.raises(ClientError, match="3 of the records that are held were forgotten"):
                party.import_table(table(export), again=again)
        assert len(party.store) == 20
        party.recover()
        assert party.import_table(table(export))["added"] == 1


def test_a_backup_from_before_the_list_was_moved(world: World) -> None:
    """Pointing the restored directory at the list that was not restored loses nothing of it."""
    world.back_up("aarhus")
    safe = world.folder / "safe.sqlite"
    with open_client(world.client("aarhus")) as party:
        party.suppression.set(path=safe)
    world.forget("aarhus", GONE)
    world.round()
    world.restore("aarhus")
    with open_client(world.client("aarhus")) as party:
        assert party.status()["ids_suppressed"] == 0
        party.suppression.set(path=safe)
        assert party.status()["ids_suppressed"] == 3
        assert party.recover()["records_forgotten_again"] == 3
    assert world.round(kind="full")["model"] == fresh_digest(kept(*GONE))
    world.check_audits()


def test_a_recovery_that_fails_forgets_nothing_of_the_list(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_client(world.client("aarhus")) as party:
        party.suppression.set(path=world.folder / "safe.sqlite")
    world.back_up("aarhus")
    world.forget("aarhus", GONE)
    world.round()
    world.restore("aarhus")

    def fails(*arguments: object) -> None:
        raise FedforgetError("the disk is full")

    with open_client(world.client("aarhus")) as party:
        with monkeypatch.context() as patch:
            patch.setattr("fedforget.parties.store.Store.put", fails)
            with pytest.raises(FedforgetError, match="the disk is full"):
                party.recover()
        assert party.status()["ids_suppressed"] == 3
        assert party.recover()["records_forgotten_again"] == 3


def test_names_and_receipts_after_a_restore(world: World) -> None:
    """A number may come again, a name does not; a file is never overwritten."""
    out = world.folder / "receipts"
    with open_client(world.client("aarhus")) as party:
        party.suppression.set(path=world.folder / "safe.sqlite")
    waiting = world.forget("aarhus", ["A-9"])
    world.back_up("aarhus")
    first = world.forget("aarhus", ["A-1"])
    world.round()
    with open_client(world.client("aarhus")) as party:
        written = [one.path for one in party.write_receipts(out)]
    assert len(written) == 2
    before = {path: path.read_bytes() for path in written}
    world.restore("aarhus")
    with open_client(world.client("aarhus")) as party:
        assert party.recover()["records_forgotten_again"] == 1
        names = [one.name for one in party.store.requests()]
    assert names[0] == waiting.request
    assert names[1].split("-")[0] == first.request.split("-")[0] == "2"
    assert names[1] != first.request
    world.round(kind="full")
    world.check_sums()
    with open_client(world.client("aarhus")) as party:
        # The request that waited in the backup has another receipt now, of another round.
        with pytest.raises(FolderError, match="exists already with other content"):
            party.write_receipts(out)
        assert all(one["salt"] for one in party.requests()), "the salts are not lost by that"
        later = party.write_receipts(world.folder / "later")
        assert len(later) == 2
    assert {path: path.read_bytes() for path in written} == before
    for path in [*written, *(one.path for one in later)]:
        assert receipts.verify(receipts.read(path), world.federation).client == "aarhus"


def test_two_copies_of_one_client(world: World) -> None:
    """The copy that was not there is named, and the one that was goes on."""
    world.back_up("aarhus", "copy")
    world.forget("aarhus", ["A-1"])
    world.round()
    world.back_up("aarhus", "original")
    world.restore("aarhus", "copy")
    assert "another copy of it is in use" in world.round()["refused"]["aarhus"]
    world.restore("aarhus", "original")
    world.round()
    world.check_sums()


def test_a_client_that_had_left_is_restored(world: World) -> None:
    with open_client(world.client("aarhus")) as party:
        party.suppression.set(path=world.folder / "safe.sqlite")
    world.back_up("aarhus")
    with open_client(world.client("aarhus")) as party:
        party.leave(alone=True)
    assert world.round()["left"] == ["aarhus"]
    world.restore("aarhus")
    done = world.without("aarhus").round()
    nobody = kept(*(f"A-{row}" for row in range(20)))
    assert done["model"] == fresh_digest(nobody)
    with open_client(world.client("aarhus")) as party:
        assert party.recover()["records_forgotten_again"] == 20
        assert len(party.store) == 0
        assert party.audit().passed


# -- old exports -------------------------------------------------------------------------------


def test_an_old_export(world: World) -> None:
    """It brings nobody back, unless the operator says so, and nobody at all before the commit."""
    export = write_npz(
        world.folder / "export.npz", [f"A-{row}" for row in range(20)], values_of(20, 0)
    )
    world.forget("aarhus", GONE)
    with open_client(world.client("aarhus")) as party:
        before = party.state_digest()
        for again in (False, True):
            with pytest.raises(ClientError, match="3 ids wait to be forgotten by the next round"):
                party.import_table(table(export), replace=True, again=again)
        assert party.state_digest() == before
    world.round()
    world.forget("aarhus", ["A-4"])
    with (
        open_client(world.client("aarhus")) as party,
        pytest.raises(ClientError, match="1 ids wait to be forgotten by the next round: 'A-4'"),
    ):
        party.import_table(table(export), replace=True)
    world.round()
    with open_client(world.client("aarhus")) as party:
        done = party.import_table(table(export), replace=True)
        assert done.items() >= {"added": 16, "replaced": 16, "kept_out": 4, "records": 16}.items()
        assert not {*GONE, "A-4"} & world_ids(party)
    assert world.round()["model"] == fresh_digest(kept(*GONE, "A-4"))
    with open_client(world.client("aarhus")) as party:
        done = party.import_table(table(export), replace=True, again=True)
        assert done.items() >= {"added": 20, "replaced": 16, "kept_out": 0, "records": 20}.items()
        assert party.status()["ids_suppressed"] == 0
        assert party.audit().passed
    assert world.round()["model"] == fresh_digest(kept())


def world_ids(party: ClientParty) -> set[str]:
    return {one[1:].decode() for one in party.store.index()}


def test_an_import_that_fails_takes_nobody_off_the_list(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = write_npz(world.folder / "export.npz", GONE, values_of(3, 0))
    world.forget("aarhus", GONE)
    world.round()

    def fails(self: object, *arguments: object) -> None:
        raise FedforgetError("the disk is full")

    with open_client(world.client("aarhus")) as party:
        with monkeypatch.context() as patch:
            patch.setattr("fedforget.parties.suppression.SuppressionList.begin_forgiving", fails)
            with pytest.raises(FedforgetError, match="the disk is full"):
                party.import_table(table(export), again=True)
        assert party.status()["ids_suppressed"] == 3
        assert party.import_table(table(export))["kept_out"] == 3
        # Begun, and cut off before the store has committed.
        with party.suppression.opened() as listed:
            listed.begin_forgiving(listed.entries(), "never made")
        assert party.import_table(table(export))["kept_out"] == 3


def test_the_list_can_be_switched_off(world: World) -> None:
    with open_client(world.client("aarhus")) as party:
        party.suppression.set(on=False)
    world.forget("aarhus", GONE)
    export = write_npz(world.folder / "export.npz", GONE, values_of(3, 0))
    with open_client(world.client("aarhus")) as party:
        assert party.status()["ids_suppressed"] == 3
        with pytest.raises(ClientError, match="wait to be forgotten"):
            party.import_table(table(export))
    world.round()
    with open_client(world.client("aarhus")) as party:
        assert party.status()["ids_suppressed"] == 0
        (receipt,) = party.store.receipts()
        assert party.import_table(table(export))["added"] == 3
    document = json.loads(receipt.document)
    assert document["suppression"] == receipts.NOT_SUPPRESSED
    assert receipts.verify(document, world.federation).records == 3


# -- a server ----------------------------------------------------------------------------------


def test_a_restored_server(world: World) -> None:
    world.back_up("server")
    world.forget("aarhus", GONE)
    digest = world.round()["model"]
    world.restore("server")
    for kind in (None, "full", "delta"):
        with pytest.raises(FedforgetError, match=RESTORED):
            world.round(kind=kind)
    done = world.recover_server()
    assert done == {"rounds_taken_over": 1, "lists_taken_over": 0, "round": 2, "epoch": 1}
    with open_server(world.server) as server:
        assert server.needs_full_round()
        assert any("run no full round since" in one for one in server.audit()["problems"])
    with pytest.raises(FedforgetError, match="a full round must come first"):
        world.round(kind="delta")
    done = world.round()
    assert (done["kind"], done["round"], done["model"]) == ("full", 3, digest)
    world.check_sums()
    world.check_audits()
    with open_client(world.client("aarhus")) as party:
        assert len(party.store.receipts()) == 1


def test_a_server_that_lost_only_an_attempt(world: World) -> None:
    """Four of five have signed their set, and the attempt broke off; the server forgets it."""
    world.back_up("server")
    world.forget("aarhus", GONE)

    def stop(stage: str) -> None:
        if stage == "unmask":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.without("evora").round(watch=stop)
    world.restore("server")
    for kind in ("full", "delta"):
        with pytest.raises(FedforgetError, match=r"a new list helps \(server enrol --afresh\)"):
            world.round(kind=kind)
    world.enrol(afresh=True)
    assert len(world.round()["participants"]) == 5
    world.check_sums()
    world.check_audits()


def test_a_list_made_after_a_commit_that_nobody_knows_any_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the server knew the round, as it broke off before any notice went; then it is restored.

    The members have the list that was made after that round, and would wait for its notice.
    """
    world.back_up("server")
    world.forget("aarhus", GONE)
    commit = ServerParty.commit

    def commit_and_break_off(*arguments: Any) -> None:
        commit(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(ServerParty, "commit", commit_and_break_off)
    with pytest.raises(KeyboardInterrupt):
        world.round()
    monkeypatch.undo()
    world.enrol(afresh=True)
    world.restore("server")
    assert world.recover_server()["lists_taken_over"] == 1
    with pytest.raises(FedforgetError, match=r"nobody knows round 2 any more.*enrol --afresh"):
        world.round()
    world.enrol(afresh=True)
    assert len(world.round()["participants"]) == 5
    assert not world.held("aarhus") & set(GONE)
    world.check_sums()
    world.check_audits()


def test_a_server_restored_to_before_several_lists(tmp_path: Path) -> None:
    """Lists and rounds come from members who know different amounts; newcomers among them."""
    world = World(tmp_path, FIVE).set_up().fill(10)
    world.round()
    world.back_up("server")
    world.enrol(suspend=["evora"])
    world.round()
    others = ("faro", "graz", "haarlem")
    more = world.with_others(*others)
    more.enrol({name: more.make_client(name) for name in others}, resume=["evora"])
    for number, name in enumerate(others):
        more.hold(name, [f"{name}-{row}" for row in range(7)], values_of(7, 50 + number))
    more.round()
    # Dresden misses the last round and list.
    rest = more.without("dresden")
    rest.round()
    document = rest.enrol(suspend=["bologna"])
    rest.round()
    world.restore("server")
    with pytest.raises(FedforgetError, match=RESTORED):
        more.round()
    done = more.recover_server()
    assert done == {"rounds_taken_over": 4, "lists_taken_over": 3, "round": 5, "epoch": 4}
    more.join("dresden", document)
    # A full round must come, and cannot while somebody is suspended who is counted.
    with pytest.raises(FedforgetError, match="bologna is suspended"):
        more.round()
    more.enrol(resume=["bologna"])
    assert more.round()["kind"] == "full"
    more.check_sums()
    more.check_audits()
    assert more.round()["kind"] == "delta"
    more.check_audits()


def test_one_who_knows_everything_is_enough(world: World) -> None:
    world.back_up("server")
    for number in range(3):
        world.forget("bologna", [f"B-{number}"])
        world.without(FIVE[number + 2]).round()
    world.restore("server")
    alone = World(world.folder, ["bologna"])
    assert alone.recover_server()["rounds_taken_over"] == 3
    assert world.round()["kind"] == "full"
    world.check_sums()
    world.check_audits()


def test_a_member_that_only_claims_to_know_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without anything that the server signed, one spoiler does not stop the rounds."""
    real = ClientParty.receive

    def lies(self: ClientParty, data: bytes) -> bytes | None:
        if self.name != "evora":
            return real(self, data)
        protocol = self.protocol
        ledger = protocol.ledger
        place = structs.replace(ledger.place, round=99)
        protocol.ledger = structs.replace(ledger, place=place, seen=2**53 - 1)
        try:
            return real(self, data)
        finally:
            protocol.ledger = ledger

    with monkeypatch.context() as patch:
        patch.setattr(ClientParty, "receive", lies)
        done = world.round()
        assert done["participants"] == list(FIVE[:4])
        assert world.recover_server()["rounds_taken_over"] == 0
    assert world.round(kind="full")["participants"] == list(FIVE)


def test_client_and_server_restored_together(world: World) -> None:
    with open_client(world.client("aarhus")) as party:
        party.suppression.set(path=world.folder / "safe.sqlite")
    world.back_up("server")
    world.back_up("aarhus")
    world.forget("aarhus", GONE)
    world.round()
    world.restore("server")
    world.restore("aarhus")
    with pytest.raises(FedforgetError, match="server recover"):
        world.round()
    world.recover_server()
    with pytest.raises(FedforgetError, match="aarhus: this directory is older than round 2"):
        world.round()
    with open_client(world.client("aarhus")) as party:
        party.recover()
    assert world.round()["model"] == fresh_digest(kept(*GONE))
    world.check_sums()
    world.check_audits()


@pytest.fixture
def lost_leaver(world: World) -> World:
    """aarhus was to leave in a sum that broke off; it and the server are restored to before."""
    for name in ("server", "aarhus"):
        world.back_up(name)
    with open_client(world.client("aarhus")) as party:
        party.leave(alone=True)

    def stop(stage: str) -> None:
        if stage == "unmask":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.round(watch=stop)
    for name in ("server", "aarhus"):
        world.restore(name)
    return world


def test_a_lost_leaver_says_it_again(lost_leaver: World) -> None:
    lost_leaver.recover_server()
    with pytest.raises(FedforgetError, match=r"say so again if it was restored \(client leave\)"):
        lost_leaver.round()
    with open_client(lost_leaver.client("aarhus")) as party:
        party.leave(alone=True)
    assert lost_leaver.round()["left"] == ["aarhus"]
    lost_leaver.without("aarhus").check_sums()


def test_a_lost_leaver_that_has_signed_again_is_taken_off_the_list(lost_leaver: World) -> None:
    """It signed a set in which it stays, the others one in which it leaves: none comes out."""
    with pytest.raises(FedforgetError, match="run `server recover` before any new list"):
        lost_leaver.round()
    lost_leaver.recover_server()
    for _ in range(2):
        with pytest.raises(FedforgetError, match=r"aarhus was to leave .*\(server enrol --gone\)"):
            lost_leaver.round()
        with open_client(lost_leaver.client("aarhus")) as party:
            party.leave(alone=True)
    rest = lost_leaver.without("aarhus")
    rest.enrol(gone=["aarhus"])
    assert rest.round()["participants"] == list(rest.names)
    rest.check_sums()


def test_a_list_that_a_restored_server_makes_without_the_leaver(lost_leaver: World) -> None:
    """Whoever signed refuses it for good, and is told the way back."""
    with open_server(lost_leaver.server) as server:
        document = server.enrol(afresh=True)
    for name in lost_leaver.without("aarhus").names:
        with pytest.raises(ForkError, match="put its backup back once more and run `server recov"):
            lost_leaver.join(name, document)
    lost_leaver.restore("server")
    lost_leaver.recover_server()
    rest = lost_leaver.without("aarhus")
    rest.enrol(gone=["aarhus"])
    assert rest.round()["participants"] == list(rest.names)


def test_a_leaver_and_the_server_restored_after_the_commit(world: World) -> None:
    for name in ("server", "aarhus"):
        world.back_up(name)
    with open_client(world.client("aarhus")) as party:
        party.leave(alone=True)
    world.round()
    for name in ("server", "aarhus"):
        world.restore(name)
    with pytest.raises(FedforgetError, match="Run `server recover`"):
        world.round()
    world.recover_server()
    with pytest.raises(FedforgetError, match=r"if it has left.*\(server enrol --gone\)"):
        world.round()
    with open_client(world.client("aarhus")) as party:
        party.recover()
    # From the notice that it missed, it learns that it has left.
    with pytest.raises(FedforgetError, match="aarhus is suspended, or has left"):
        world.round()
    with open_server(world.server) as server:
        document = server.enrol(afresh=True)
    with pytest.raises(ClientError, match=r"takes it off the list \(server enrol --gone\)"):
        world.join("aarhus", document)
    rest = world.without("aarhus")
    for name in rest.names:
        rest.join(name, document)
    rest.enrol(gone=["aarhus"])
    assert rest.round()["participants"] == list(rest.names)
    rest.check_sums()


# -- directories of version 0.1 ----------------------------------------------------------------


def test_directories_of_the_first_version(tmp_path: Path) -> None:
    with zipfile.ZipFile(Path(__file__).parent / "version-1.zip") as archive:
        archive.extractall(tmp_path)
    for folder in (tmp_path / "server", tmp_path / "aarhus"):
        folder.chmod(0o700)
        for path in folder.iterdir():
            path.chmod(0o600)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with (
        pytest.raises(FedforgetError, match="made by an earlier fedforget") as refusal,
        open_client(tmp_path / "aarhus"),
    ):
        pass
    assert "client init" in str(refusal.value), str(refusal.value)
    with (
        pytest.raises(FedforgetError, match="made by an earlier fedforget") as refusal,
        open_server(tmp_path / "server"),
    ):
        pass
    assert "server init" in str(refusal.value), str(refusal.value)
    after = {path: path.read_bytes() for path in before}
    assert after == before


def test_an_import_into_a_restored_directory(tmp_path: Path) -> None:
    """Whoever is held though forgotten must not be passed over: the record would stay."""
    world = World(tmp_path / "world").set_up().fill()
    with open_client(world.client("aarhus")) as party:
        party.suppression.set(path=tmp_path / "elsewhere.db")
    world.round()
    world.back_up("aarhus")
    world.forget("aarhus", ["A-3"])
    world.round()
    world.restore("aarhus")
    with open_client(world.client("aarhus")) as party:
        ids = [f"A-{row}" for row in range(6)]
        export = write_npz(tmp_path / "export.npz", ids, values_of(6, 1))
        with pytest.raises(ClientError, match=r"1 of the records .* Run client recover first"):
            party.import_table(table(export), replace=True)
        assert party.recover()["records_forgotten_again"] == 1
