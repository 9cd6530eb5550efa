"""Amendments: the model of a fresh federation, one history, and nothing that a lie could gain."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from amending import (
    AGE,
    HEIGHT,
    RULES,
    WEIGHT,
    Made,
    amend_all,
    amend_server,
    changed_file,
    fresh_model,
    hold,
    patients,
    take_over,
    write_records,
)
from msgspec import structs
from party_world import FIVE, NAMES, World, all_bytes, federation_file, found_in, table, traces

from fedforget.parties import receipts
from fedforget.parties.amended_servers import AmendmentError, plan_amendment, take_back
from fedforget.parties.amendments import check_next, differences, next_version
from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.errors import ClientError
from fedforget.parties.federation_file import Feature, FederationFile, FederationFileError
from fedforget.parties.folders import write_private
from fedforget.parties.policy import FILE as POLICY
from fedforget.parties.policy import SitePolicyError
from fedforget.parties.server_party import ServerParty, open_server
from fedforget.protocol.errors import (
    AloneError,
    ForkError,
    OutOfOrderError,
    WrongFederationError,
)
from fedforget.protocol.graph import PolicyError
from fedforget.protocol.keys import Identity
from fedforget.protocol.membership import SignedMembership
from fedforget.protocol.messages import Letter, Notice, Payload
from fedforget.runtime.directories import RoundError

Everything = dict[str, dict[str, dict[str, float]]]


@pytest.fixture
def study(tmp_path: Path) -> tuple[World, Everything]:
    """Three members with thirty records each, after their first round."""
    world = World(tmp_path / "study").set_up()
    records = {name: patients(name, 30, number) for number, name in enumerate(NAMES)}
    for name, held in records.items():
        hold(world, name, held)
    world.round()
    return world, records


CHANGES = [
    {"n_clusters": 4},
    {"local_clusters": 6},
    {"step": 0.02},
    {"features": (replace(AGE, high=150.0), WEIGHT)},
    {"disclosure": RULES},
    {"features": (WEIGHT,)},
    {"features": (WEIGHT, AGE)},
    {"minimum": 2, "dropout": 0.0, "n_init": 3},
    {"representatives": "lloyd"},
    {"representatives": "seeds"},
    {"scale": "none"},
]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_the_model_is_that_of_a_fresh_federation(
    study: tuple[World, Everything], tmp_path: Path, changes: dict
) -> None:
    world, records = study
    world.forget("aarhus", ["A-0-3"])
    made = amend_all(world, **changes)
    assert made.file.version == 2
    with open_server(world.server) as server:
        assert server.needs_full_round()
        assert server.audit()["problems"] == []
    world.forget("bologna", ["B-1-7"])
    done = world.round()
    assert done["kind"] == "full"
    del records["aarhus"]["A-0-3"], records["bologna"]["B-1-7"]
    assert done["model"] == fresh_model(tmp_path / "fresh", world, records)
    world.check_audits()
    world.check_sums()
    world.forget("coimbra", ["C-2-1"])
    del records["coimbra"]["C-2-1"]
    done = world.round()
    assert done["kind"] == "delta"
    assert done["model"] == fresh_model(tmp_path / "again", world, records)
    world.check_audits()


def test_receipts_of_all_versions_stay_valid(study: tuple[World, Everything]) -> None:
    world, _ = study
    world.forget("aarhus", ["A-0-3"])
    world.round()
    world.forget("aarhus", ["A-0-4"])
    first = world.federation
    # A version without a round of its own, and then another one.
    amend_all(world, n_clusters=3)
    last = amend_all(world, step=0.02).file
    world.round()
    with open_client(world.client("aarhus")) as client:
        old, new = (json.loads(one.document) for one in client.store.receipts())
    assert receipts.verify(old, first).round == 2
    proof = receipts.verify(new, last)
    assert (proof.round, proof.model_before) == (3, receipts.verify(old, first).model_after)
    with pytest.raises(receipts.EarlierVersionError, match=r"version 1.*federation-1\.toml"):
        receipts.verify(old, last)
    with pytest.raises(receipts.ReceiptError, match="configuration"):
        receipts.verify(new, first)
    for party in ("server", *NAMES):
        assert FederationFile.read(world.folder / party / "federation-1.toml") == first


def test_a_request_of_before_an_amendment_that_was_missed(
    study: tuple[World, Everything],
) -> None:
    """The commit that carries it is told after the amendment: its receipt names the old version."""
    world, _ = study
    world.forget("aarhus", ["A-0-3"])
    world.back_up("aarhus")
    first = world.federation
    world.round()
    with open_client(world.client("aarhus")) as client:
        told = client.store.notice(2)
        sealed = client.store.receipts()
    assert told is not None
    assert len(sealed) == 1
    made = amend_server(world, n_clusters=4)
    world.restore("aarhus")
    with open_client(world.client("aarhus")) as client:
        client.recover(["A-0-3"])
    take_over(world, made)
    assert world.round()["kind"] == "full"
    world.check_audits()
    with open_client(world.client("aarhus")) as client:
        (again,) = (json.loads(one.document) for one in client.store.receipts())
    assert receipts.verify(again, made.file).round == 3
    assert receipts.verify(json.loads(sealed[0].document), first).round == 2


# -- features and bounds -----------------------------------------------------------------------


def test_new_features_wait_for_an_import(study: tuple[World, Everything], tmp_path: Path) -> None:
    world, records = study
    amend_all(world, features=(AGE, HEIGHT, WEIGHT))
    with open_client(world.client("aarhus")) as client:
        shown = client.status()["records_that_do_not_fit"]
        assert "30 records have no value of height: import them again" in shown
        assert "client import --replace, or client sync" in shown
        assert client.audit().passed
        with pytest.raises(ClientError, match="no value of height"):
            client.preview()
        with pytest.raises(ClientError, match="no value of height"):
            client.labels(client.config.grid.bounds.T)
        forgotten = client.forget(["A-0-3"])
        assert forgotten.reseeded is None
    del records["aarhus"]["A-0-3"]
    with pytest.raises(RoundError) as refused:
        world.round()
    # The server learns that the member cannot take part, and not why.
    assert "its operator sees why" in str(refused.value)
    assert "height" not in str(refused.value)
    for name in NAMES[1:]:
        hold(world, name, records[name], again=True)
    some = dict(list(records["aarhus"].items())[:20])
    hold(world, "aarhus", some, again=True)
    with open_client(world.client("aarhus")) as client:
        assert "9 records have no value of height" in client.status()["records_that_do_not_fit"]
    names = world.federation.feature_names
    whole = write_records(tmp_path / "whole.npz", records["aarhus"], names)
    with open_client(world.client("aarhus")) as client:
        client.sync(table(whole, names))
        assert client.status()["records_that_do_not_fit"] is None
    done = world.round()
    assert done["kind"] == "full"
    assert done["model"] == fresh_model(tmp_path / "fresh", world, records)
    world.check_audits()
    with open_client(world.client("aarhus")) as client:
        (receipt,) = (json.loads(one.document) for one in client.store.receipts())
    assert receipts.verify(receipt, world.federation).records == 1


def test_records_outside_new_bounds_are_named_and_wait(
    study: tuple[World, Everything], tmp_path: Path
) -> None:
    world, records = study
    old = {one for one, values in records["aarhus"].items() if values["age"] > 70.0}
    older = {one for name in NAMES for one, v in records[name].items() if v["age"] > 70.0}
    assert old
    amend_all(world, features=(replace(AGE, high=70.0), WEIGHT))
    with open_client(world.client("aarhus")) as client:
        misfit = client.misfit()
        assert misfit is not None
        assert set(misfit.ids) == old
        assert misfit.outside == {"age": len(old)}
        assert client.audit().passed
    with pytest.raises(RoundError, match="cannot take part"):
        world.round()
    # Bounds that are wide again let everybody go on.
    amend_all(world, features=(AGE, WEIGHT))
    assert world.round()["model"] == fresh_model(tmp_path / "fresh", world, records)
    amend_all(world, features=(replace(AGE, high=70.0), WEIGHT))
    for name in NAMES:
        gone = sorted(older & records[name].keys())
        world.forget(name, gone)
        for one in gone:
            del records[name][one]
    assert world.round()["model"] == fresh_model(tmp_path / "again", world, records)
    world.check_audits()


def test_values_of_a_feature_that_is_dropped_leave_no_trace(
    study: tuple[World, Everything],
) -> None:
    world, records = study
    weights = np.array([one["weight"] for one in records["aarhus"].values()])
    folder = world.client("aarhus")
    wanted = traces([], weights)
    assert found_in(all_bytes(folder), wanted)
    amend_all(world, features=(AGE,))
    assert found_in(all_bytes(folder), wanted) == []
    world.round()
    assert found_in(all_bytes(folder), wanted) == []


# -- what is refused ---------------------------------------------------------------------------


def test_the_policy_of_a_site_is_asked_again(study: tuple[World, Everything]) -> None:
    world, _ = study
    write_private(world.client("aarhus") / POLICY, b'features = ["age", "weight"]\n')
    made = amend_server(world, features=(AGE, WEIGHT, HEIGHT))
    take_over(world, made, "bologna", "coimbra")
    with pytest.raises(SitePolicyError, match="height"):
        take_over(world, made, "aarhus")
    with open_client(world.client("aarhus")) as client:
        assert client.status()["version"] == 1
        assert client.audit().passed


def test_a_changed_file_is_refused(study: tuple[World, Everything]) -> None:
    world, _ = study
    made = amend_server(world, n_clusters=4)
    text = made.file.text()
    with pytest.raises(FederationFileError, match=r"amendment\.signature"):
        FederationFile.parse(text.replace("n_clusters = 4", "n_clusters = 5"))
    mallory = next_version(
        FederationFile.read(world.server / "federation-1.toml"),
        changed_file(made.file, n_clusters=5),
        made.file.first_epoch,
        Identity(bytes(32)),
    )
    with pytest.raises(FederationFileError, match=r"amendment\.signature"):
        FederationFile.parse(mallory.text())


def test_versions_are_taken_in_their_order(study: tuple[World, Everything]) -> None:
    world, _ = study
    first = world.federation
    two, three = amend_server(world, n_clusters=3), amend_server(world, n_clusters=4)
    with pytest.raises(FederationFileError, match="take version 2 first"):
        take_over(world, three)
    take_over(world, two)
    with pytest.raises(FederationFileError, match="amended since"):
        take_over(world, Made(first, three.document))
    take_over(world, three)
    assert world.round()["kind"] == "full"
    world.check_audits()


def test_another_second_version_is_refused(study: tuple[World, Everything]) -> None:
    """A server that tells two histories cannot amend a member twice with one number."""
    world, _ = study
    world.back_up("server")
    one = amend_server(world, n_clusters=3)
    world.restore("server")
    (world.server / "federation-1.toml").unlink(missing_ok=True)
    other = amend_server(world, n_clusters=4)
    take_over(world, one)
    with pytest.raises(FederationFileError, match="another one here"):
        take_over(world, other)
    with pytest.raises(RoundError, match="another federation file"):
        world.round()


def test_a_list_that_amends_and_drops_somebody_is_refused(tmp_path: Path) -> None:
    """Two full sums, of which one is without a member, would show its histogram."""
    world = World(tmp_path, (*NAMES, "dresden")).set_up(federation_file())
    world.fill()
    world.round()
    with open_server(world.server) as server:
        listed, identity = server.plan(gone=["dresden"]), server.identity
        changed = changed_file(server.federation, n_clusters=4)
        after = next_version(server.federation, changed, listed.epoch, identity)
        document = type(server.document()).of(SignedMembership.by(listed, identity))  # type: ignore[arg-type]
    with (
        open_client(world.client("aarhus")) as client,
        pytest.raises(FederationFileError, match="also changes its members"),
    ):
        client.plan_join(after, document, alone=True)


def test_an_amendment_needs_its_list(study: tuple[World, Everything]) -> None:
    world, _ = study
    made = amend_server(world, n_clusters=4)
    with open_server(world.server) as server:
        later = server.enrol(afresh=True)
    with open_client(world.client("aarhus")) as client:
        with pytest.raises(FederationFileError, match="list of epoch 2"):
            client.plan_join(made.file, later)
        client.join(made.file, made.document, later)


def test_the_file_may_come_after_its_list_but_not_after_a_commit(
    study: tuple[World, Everything],
) -> None:
    world, _ = study
    made = amend_server(world, n_clusters=4)
    with open_client(world.client("aarhus")) as client:
        client.join(None, made.document)
        client.join(made.file, made.document)
    take_over(world, made, "bologna", "coimbra")
    assert world.round()["kind"] == "full"
    world.check_audits()


def test_a_file_that_comes_after_its_list_is_held_against_that_list(tmp_path: Path) -> None:
    """The new policy asks for more than the old one, with which the list was taken over."""
    world = World(tmp_path, FIVE).set_up(federation_file()).fill(10)
    world.round()
    world.enrol(suspend=["evora"])
    with open_server(world.server) as server:
        document = server.enrol(afresh=True)
        strict = replace(server.federation.protocol, colluding=0.4)
        changed = replace(server.federation, protocol=strict)
        after = next_version(server.federation, changed, document.epoch, server.identity)
    with (
        open_client(world.client("bologna")) as client,
        pytest.raises(AloneError, match="took part under every list"),
    ):
        client.plan_join(after, document)
    with open_client(world.client("aarhus")) as client:
        client.join(None, document)
        with pytest.raises(AloneError, match="took part under every list"):
            client.plan_join(after, document)
        client.plan_join(after, document, alone=True)


def test_a_file_for_a_list_that_has_a_commit_is_refused(study: tuple[World, Everything]) -> None:
    world, _ = study
    with open_server(world.server) as server:
        document = server.enrol(afresh=True)
        changed = changed_file(server.federation, n_clusters=4)
        late = next_version(server.federation, changed, 2, server.identity)
    for name in NAMES:
        world.join(name, document)
    world.round()
    with (
        open_client(world.client("aarhus")) as client,
        pytest.raises(FederationFileError, match="a round was committed"),
    ):
        client.plan_join(late, document)


def test_no_round_of_changes_after_other_bins(study: tuple[World, Everything]) -> None:
    """A server that asks for changes at once gets nothing: what was counted says nothing now."""
    world, _ = study
    amend_all(world, step=0.02)
    with pytest.raises(Exception, match="full round must come first"):
        world.round(kind="delta")
    with open_server(world.server) as server, server.storing():
        server.keep_ledger(structs.replace(server.ledger(), full_due=False))
    with pytest.raises(Exception, match="a full round is needed"):
        world.round(kind="delta")
    for name in NAMES:
        with open_client(world.client(name)) as client:
            assert client.ledger().base is None
            assert client.ledger().pending is None


def test_a_full_round_after_an_amendment_needs_everybody(study: tuple[World, Everything]) -> None:
    world, _ = study
    amend_all(world, n_clusters=4)
    with pytest.raises(Exception, match="coimbra"):
        world.without("coimbra").round()
    with open_server(world.server) as server:
        assert server.status()["last_round"] == 1
        # What is shown is the model that was committed last.
        assert server.status()["clusters"] == 2
        assert len(server.centres()[0]) == 2


def test_nobody_may_be_suspended_or_wait_to_leave(tmp_path: Path) -> None:
    world = World(tmp_path, (*NAMES, "dresden", "evora")).set_up(federation_file())
    world.fill()
    world.round()
    world.enrol(suspend=["evora"])
    with pytest.raises(AmendmentError, match="evora is suspended"):
        amend_server(world, n_clusters=4)
    world.enrol(resume=["evora"])
    with open_client(world.client("dresden")) as client:
        client.leave()
    world.round()
    with pytest.raises(AmendmentError, match="wait to leave"):
        amend_server(world, step=0.02)
    # With the same bins it can say once more what was counted.
    amend_all(world, n_clusters=4)
    assert world.round()["kind"] == "full"
    world.check_audits()


def test_nothing_to_amend(study: tuple[World, Everything]) -> None:
    world, _ = study
    with pytest.raises(AmendmentError, match="nothing would change"):
        amend_server(world)
    with open_server(world.server) as server, pytest.raises(Exception, match="7"):
        plan_amendment(server, changed_file(server.federation, minimum=7))


def test_more_colluders_than_a_sum_can_hide_from(study: tuple[World, Everything]) -> None:
    """Two of three collude: every sum would be that of one honest member."""
    world, _ = study
    with pytest.raises(PolicyError, match="would show what one honest member reports"):
        amend_server(world, colluding=0.4, dropout=0.0)
    with open_server(world.server) as server:
        assert server.federation.version == 1
    # A server that makes the amendment all the same finds nobody who takes it over.
    with open_server(world.server) as server:
        changed = changed_file(server.federation, colluding=0.4, dropout=0.0)
        late = next_version(server.federation, changed, 2, server.identity)
        document = server.enrol(afresh=True)
    with (
        open_client(world.client("aarhus")) as client,
        pytest.raises(PolicyError, match="would show what one honest member reports"),
    ):
        client.join(late, document)


def test_more_colluders_ask_those_who_are_too_few_in_every_sum(tmp_path: Path) -> None:
    """Lists have suspended one and let it come back; four in every sum were enough before."""
    world = World(tmp_path, FIVE).set_up(federation_file()).fill()
    world.round()
    world.enrol(suspend=["evora"])
    world.enrol(resume=["evora"])
    with open_server(world.server) as server:
        changed = changed_file(server.federation, colluding=0.3)
        plan = plan_amendment(server, changed)
        assert plan.joined.asked() == list(FIVE[:4])
        assert any("from 2 holds for what is reported" in line for line in plan.consequences)
    made = amend_server(world, colluding=0.3)
    with (
        open_client(world.client("aarhus")) as client,
        pytest.raises(AloneError, match="took part under every list since round 1"),
    ):
        client.join(made.file, made.document)


def test_more_colluders_after_a_commit_ask_nobody(tmp_path: Path) -> None:
    world = World(tmp_path, FIVE).set_up(federation_file()).fill()
    world.round()
    world.enrol(suspend=["evora"])
    world.enrol(resume=["evora"])
    world.round()
    with open_server(world.server) as server:
        plan = plan_amendment(server, changed_file(server.federation, colluding=0.3))
        assert plan.joined.asked() == []
    amend_all(world, colluding=0.3)
    assert world.round()["kind"] == "full"
    world.check_audits()


def test_more_colluders_ask_newcomers_who_are_too_few_now(tmp_path: Path) -> None:
    """Three newcomers were enough to hide each other from one; they are not counted yet."""
    world = World(tmp_path, FIVE).set_up(federation_file()).fill()
    world.round()
    new = ("faro", "ghent", "horsens")
    wider = world.with_others(*new)
    wider.enrol({name: wider.make_client(name) for name in new})
    with open_server(world.server) as server:
        plan = plan_amendment(server, changed_file(server.federation, colluding=0.3))
        assert plan.joined.asked() == list(new)
        assert any("by the amended policy too few" in line for line in plan.joined.will_show())
    made = amend_server(world, colluding=0.3)
    with (
        open_client(wider.client("faro")) as client,
        pytest.raises(AloneError, match="3 new members join with list 2, fewer than 5"),
    ):
        client.join(made.file, made.document)


# -- newcomers, crashes, recoveries ------------------------------------------------------------


def test_a_newcomer_after_an_amendment(study: tuple[World, Everything], tmp_path: Path) -> None:
    world, records = study
    amend_all(world, step=0.02)
    with open_server(world.server) as server:
        old = server.document()
    wider = world.with_others("dresden")
    key = wider.make_client("dresden")
    with pytest.raises(AloneError):
        wider.enrol({"dresden": key})
    with open_server(world.server) as server:
        document = server.document()
    assert document is not None
    with open_client(wider.client("dresden")) as client:
        client.join(wider.federation, document, alone=True)
    records["dresden"] = patients("dresden", 30, 9)
    hold(wider, "dresden", records["dresden"])
    done = wider.round()
    assert done["kind"] == "full"
    assert done["model"] == fresh_model(tmp_path / "fresh", wider, records)
    wider.check_audits()
    assert old is not None
    stranger = wider.with_others("evora")
    stranger.make_client("evora")
    first = FederationFile.read(world.server / "federation-1.toml")
    newest = amend_server(wider, n_clusters=4)
    with (
        open_client(stranger.client("evora")) as client,
        pytest.raises(Exception, match="older than version"),
    ):
        client.plan_join(newest.file, old)
    check_next(first, FederationFile.read(world.server / "federation-2.toml"))


def test_a_party_that_was_killed_before_the_file_was_written(
    study: tuple[World, Everything],
) -> None:
    world, _ = study
    first = world.federation
    made = amend_all(world, n_clusters=4)
    for party in ("server", *NAMES):
        # The store knows the new version, the folder has the old file.
        folder = world.folder / party
        (folder / "federation.toml").write_text(first.text())
        (folder / "federation-1.toml").unlink()
    assert world.round()["kind"] == "full"
    assert world.federation == made.file
    for party in ("server", *NAMES):
        assert FederationFile.read(world.folder / party / "federation.toml") == made.file
        assert FederationFile.read(world.folder / party / "federation-1.toml") == first
    (world.server / "federation.toml").write_text(
        made.file.text().replace("n_init = 2", "n_init = 2 # touched")
    )
    with open_server(world.server):
        pass


def test_a_client_restored_from_before_an_amendment(
    study: tuple[World, Everything], tmp_path: Path
) -> None:
    world, records = study
    world.back_up("aarhus")
    world.forget("aarhus", ["A-0-3"])
    del records["aarhus"]["A-0-3"]
    made = amend_all(world, local_clusters=6)
    world.round()
    world.restore("aarhus")
    with pytest.raises(RoundError, match="has been amended: run client join with version 2"):
        world.round()
    with open_client(world.client("aarhus")) as client:
        client.recover(["A-0-3"])
        client.join(made.file, made.document)
    done = world.round(kind="full")
    assert done["model"] == fresh_model(tmp_path / "fresh", world, records)
    world.check_audits()


def test_a_server_restored_from_before_amendments(
    study: tuple[World, Everything], tmp_path: Path
) -> None:
    world, records = study
    world.back_up("server")
    two = amend_all(world, local_clusters=6)
    world.round()
    three = amend_all(world, n_clusters=3)
    world.round()
    world.restore("server")
    with pytest.raises(RoundError, match="server amend --restore"):
        world.round()
    with pytest.raises(RoundError, match="server amend --restore"):
        world.recover_server()
    with open_server(world.server) as server:
        with pytest.raises(FederationFileError, match="take version 2 first"):
            take_back(server, [three.file])
        assert take_back(server, [three.file, two.file]) == 2
        with pytest.raises(AmendmentError, match="already"):
            take_back(server, [two.file])
        assert server.status()["clusters"] == 2
    found = world.recover_server()
    assert (found["rounds_taken_over"], found["lists_taken_over"]) == (2, 2)
    done = world.round(kind="full")
    assert done["round"] == 4
    assert done["model"] == fresh_model(tmp_path / "fresh", world, records)
    world.check_audits()


def test_an_audit_finds_versions_that_are_not_those_of_the_log(
    study: tuple[World, Everything],
) -> None:
    world, _ = study
    amend_all(world, n_clusters=4)
    world.round()
    with open_server(world.server) as server, server.storing() as database:
        database.put("versions", [])
    with open_server(world.server) as server:
        problems = server.audit()["problems"]
    assert any("versions of the federation file" in one for one in problems)


# -- in words ----------------------------------------------------------------------------------


def test_differences_in_words() -> None:
    before = federation_file()
    after = changed_file(
        before,
        n_clusters=5,
        step=0.02,
        disclosure=RULES,
        minimum=4,
        features=(HEIGHT, Feature("age", 0.0, 110.0)),
    )
    assert differences(before, after) == [
        "clusters: 2 → 5",
        "step of the grid: 0.01 → 0.02",
        "fewest members whose inputs are summed up: 3 → 4",
        "fewest records of a cluster that a client reports (min_cell): 1 → 3",
        "fewest records of a client that reports (min_records): 1 → 4",
        "step of reported sizes (count_step): 1 → 2",
        "step of published centres (published_step): 0 → 0.01",
        "feature height: new, 20 to 250",
        "feature age: 0 to 120 → 0 to 110",
        "feature weight: no longer used",
    ]
    assert differences(before, before) == []
    filled = changed_file(before, features=(replace(AGE, fill=40.0), WEIGHT))
    assert differences(before, filled) == [
        "feature age: 0 to 120 → 0 to 120, 40 where a value is missing"
    ]


def test_a_file_without_amendments_is_what_it_was() -> None:
    file = replace(federation_file(), server_key="11" * 32)
    assert "amendment" not in file.text()
    assert FederationFile.parse(file.text()) == file
    assert not any(key.startswith("amendment") for key in file.values())


# -- attempts and commits around an amendment --------------------------------------------------


def is_notice(data: bytes) -> bool:
    content = Letter(data).content
    return isinstance(content, Payload) and isinstance(content.body, Notice)


def lose_notice(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The commit notice of the next round does not reach one member."""
    receive = ClientParty.receive

    def deaf(party: ClientParty, data: bytes) -> bytes | None:
        if party.name == name and is_notice(data):
            raise OutOfOrderError("lost on the way")
        return receive(party, data)

    monkeypatch.setattr(ClientParty, "receive", deaf)


@pytest.mark.parametrize("changes", [{"n_clusters": 4}, {"step": 0.02}], ids=str)
def test_a_commit_that_reaches_a_member_after_the_amendment(
    study: tuple[World, Everything],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict,
) -> None:
    """It is followed by the rules of its time; what it counts is a base only in the same bins."""
    world, records = study
    first = world.federation
    world.forget("aarhus", ["A-0-3"])
    del records["aarhus"]["A-0-3"]
    with monkeypatch.context() as patch:
        lose_notice(patch, "aarhus")
        assert world.round()["kind"] == "delta"
    made = amend_all(world, **changes)
    with open_client(world.client("aarhus")) as client:
        assert client.ledger().place.round == 1
        assert client.ledger().pending is not None
    done = world.round()
    assert (done["round"], done["kind"]) == (3, "full")
    assert done["model"] == fresh_model(tmp_path / "fresh", world, records)
    world.check_audits()
    world.check_sums()
    with open_client(world.client("aarhus")) as client:
        (document,) = (json.loads(one.document) for one in client.store.receipts())
    assert receipts.verify(document, first).round == 2
    with pytest.raises(receipts.EarlierVersionError):
        receipts.verify(document, made.file)


def test_a_late_commit_in_other_bins_is_no_base(
    study: tuple[World, Everything], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that opens a round of changes with it gets nothing."""
    world, _ = study
    world.forget("aarhus", ["A-0-3"])
    with monkeypatch.context() as patch:
        lose_notice(patch, "aarhus")
        world.round()
    amend_all(world, step=0.02)
    with open_server(world.server) as server:
        (letter,) = server.notices_after(1)
    with open_client(world.client("aarhus")) as client:
        client.receive(letter)
        assert client.ledger().place.round == 2
        assert client.ledger().base is None
        assert client.ledger().needs_full


def test_a_late_commit_in_the_same_bins_is_a_base(
    study: tuple[World, Everything], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, _ = study
    with monkeypatch.context() as patch:
        lose_notice(patch, "aarhus")
        world.round()
    amend_all(world, n_clusters=3)
    with open_server(world.server) as server:
        (letter,) = server.notices_after(1)
    with open_client(world.client("aarhus")) as client:
        client.receive(letter)
        assert client.ledger().base == client.histogram()


def test_an_attempt_that_died_before_the_amendment(
    study: tuple[World, Everything], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members have signed and revealed: that sum and the next one are of the same members."""
    world, records = study
    world.forget("aarhus", ["A-0-3"])
    del records["aarhus"]["A-0-3"]

    def dies(*_: object) -> None:
        raise OSError("the machine went down")

    with monkeypatch.context() as patch:
        patch.setattr(ServerParty, "commit", dies)
        with pytest.raises(OSError, match="went down"):
            world.round()
    made = amend_all(world, step=0.02)
    with open_client(world.client("bologna")) as client:
        lock = client.ledger().lock
        assert lock is not None
        assert lock.alive == NAMES
        assert client.ledger().pending is None
    with pytest.raises(Exception, match="coimbra"):
        world.without("coimbra").round()
    done = world.round()
    assert (done["round"], done["kind"]) == (2, "full")
    assert done["model"] == fresh_model(tmp_path / "fresh", world, records)
    world.check_audits()
    with open_client(world.client("aarhus")) as client:
        (document,) = (json.loads(one.document) for one in client.store.receipts())
    assert receipts.verify(document, made.file).round == 2


def test_a_commit_of_before_the_amendment_that_comes_too_late(
    study: tuple[World, Everything], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server cannot commit an attempt of before once members have taken the next list over."""
    world, _ = study
    letters: list[bytes] = []
    commit = ServerParty.commit

    def commits_elsewhere(party: ServerParty, *given: object) -> None:
        commit(party, *given)  # type: ignore[arg-type]
        letters.extend(party.notices_after(1))
        raise OSError("the machine went down")

    world.back_up("server")
    with monkeypatch.context() as patch:
        patch.setattr(ServerParty, "commit", commits_elsewhere)
        with pytest.raises(OSError, match="went down"):
            world.round()
    world.restore("server")
    made = amend_server(world, step=0.02)
    take_over(world, made)
    (letter,) = letters
    with open_client(world.client("aarhus")) as client:
        with pytest.raises(ForkError, match="should not have been run with the list of epoch 1"):
            client.receive(letter)
        assert client.ledger().place.round == 1


def test_what_was_approved_must_be_approved_again(study: tuple[World, Everything]) -> None:
    world, _ = study
    write_private(world.client("aarhus") / POLICY, b"approval = true\n")
    with open_client(world.client("aarhus")) as client:
        client.approve(client.preview().digest)
        assert client.preview().verdict.goes
    amend_all(world, features=(replace(AGE, high=150.0), WEIGHT))
    with open_client(world.client("aarhus")) as client:
        assert not client.preview().verdict.goes


def test_who_waits_for_an_approval_is_not_told_from_who_does_not_fit(
    study: tuple[World, Everything],
) -> None:
    """After an amendment there is nothing that a site without an approval could send instead."""
    world, _ = study
    write_private(world.client("aarhus") / POLICY, b"approval = true\n")
    made = amend_all(world, features=(replace(AGE, high=150.0), replace(WEIGHT, high=150.0)))
    hold(world, "bologna", {"B-heavy": {"age": 40.0, "weight": 149.0}})
    with pytest.raises(RoundError) as refused:
        world.round()
    told = "aarhus cannot take part now; its operator sees why (client status, client preview)"
    assert told in str(refused.value)
    with open_client(world.client("aarhus")) as client:
        client.approve(client.preview().digest)
    assert world.round()["kind"] == "full"
    # Now bologna has a record that does not fit, and says the same.
    amend_all(world, features=(replace(AGE, high=150.0), replace(WEIGHT, high=148.0)))
    with open_client(world.client("aarhus")) as client:
        client.approve(client.preview().digest)
    with pytest.raises(RoundError) as refused:
        world.round()
    assert told.replace("aarhus", "bologna") in str(refused.value)
    assert made.file.version == 2


def test_a_round_of_the_old_version_under_the_amending_list(tmp_path: Path) -> None:
    """A server gives one member the new file and keeps it from the others: they part for good."""
    world = World(tmp_path, (*NAMES, "dresden")).set_up(federation_file())
    world.fill()
    world.round()
    world.back_up("server")
    made = amend_server(world, n_clusters=4)
    take_over(world, made, "dresden")
    world.restore("server")
    with open_server(world.server) as server:
        document = server.enrol(afresh=True)
    assert document == made.document
    others = world.without("dresden")
    for name in others.names:
        with open_client(world.client(name)) as client:
            client.join(None, document)
    assert others.round()["kind"] == "delta"
    with open_server(world.server) as server:
        (letter,) = server.notices_after(1)
    with open_client(world.client("dresden")) as client:
        with pytest.raises(WrongFederationError, match="belongs to the list of epoch 2"):
            client.receive(letter)
        assert client.ledger().place.round == 1
    # Nor can the others take the file over any more.
    with (
        open_client(world.client("aarhus")) as client,
        pytest.raises(FederationFileError, match="a round was committed"),
    ):
        client.plan_join(made.file, document)
