"""The audit of a server: its model from its aggregate, its log and its history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fedforget.modelling import model_of
from fedforget.parties.amended_servers import problems_of_versions
from fedforget.parties.database import Database
from fedforget.parties.folders import strange_databases
from fedforget.parties.log import check_chain
from fedforget.parties.server_store import SCHEMA, STORE, plain_model
from fedforget.protocol.errors import ProtocolError
from fedforget.protocol.history import check_lists, walk
from fedforget.protocol.keys import PublicKey
from fedforget.protocol.rules import why_no_delta

if TYPE_CHECKING:
    from fedforget.parties.server_party import ServerParty


def audit_of(party: ServerParty, database: Database) -> dict[str, Any]:
    """Recompute the model from the aggregate, walk the log and the history."""
    log = party.log()
    key = PublicKey(bytes.fromhex(party.federation.server_key))
    length = check_chain(log, key)
    rounds = [entry for entry in log if entry["kind"] == "round"]
    problems = [
        *_problems_of_model(party, database, log),
        *_problems_of_history(party, database, log),
        *(
            f"{STORE} holds something that fedforget did not make: {table}"
            for table in database.strange_tables(SCHEMA, SCHEMA.values)
        ),
        *database.damaged_values(),
        *(
            f"{path} is a database that fedforget did not make: move it elsewhere, or erase it"
            for path in strange_databases(party.folder, [party.folder / STORE])
        ),
    ]
    return {"log_entries": length, "rounds": len(rounds), "problems": problems}


def _problems_of_model(
    party: ServerParty, database: Database, log: list[dict[str, Any]]
) -> Iterator[str]:
    told = [entry for entry in log if entry["kind"] in ("round", "recovery")]
    if not told:
        return
    if told[-1]["kind"] == "recovery":
        yield "this server was recovered and has run no full round since: its model is old"
        return
    config = party.model_config
    model = model_of(config, party.aggregate())
    digest = config.model_digest(party.aggregate(), model)
    if digest != told[-1]["body"]["model"]:
        yield "the aggregate does not give the model that the log names"
    if plain_model(model) != database.get("model"):
        yield "the stored model is not that of the aggregate"


def _problems_of_history(
    party: ServerParty, database: Database, log: list[dict[str, Any]]
) -> Iterator[str]:
    """The ledger, the lists and the notices must tell the same as the log."""
    yield from problems_of_versions(log, [*party.versions, party.federation])
    lists, ledger = party.lists(), party.ledger()
    told = [entry["body"] for entry in log if entry["kind"] in ("round", "recovery")]
    last = told[-1]["round"] if told else 0
    if last != ledger.place.round:
        yield (f"the log ends with round {last}, but round {ledger.place.round} was committed last")
    epochs = [entry["body"] for entry in log if entry["kind"] in ("epoch", "recovery")]
    listed = lists[-1] if lists else None
    named = epochs[-1].get("list") if epochs else None
    if named != (None if listed is None else listed.digest.hex()):
        yield "the membership list is not the one that the log names"
    stored = database.execute("SELECT epoch FROM list ORDER BY epoch")
    if [(one.epoch,) for one in lists] != stored:
        yield "a membership list is stored under another epoch than its own"
    if listed is None:
        return
    try:
        place = walk(lists, party.notices_after(0), party.protocol_federation)
        check_lists(party.signed_lists(), party.protocol_federation)
        if place != ledger.place:
            yield "the ledger does not stand where the commit notices lead"
    except ProtocolError as error:
        yield f"the history does not hold: {error}"
    reason = why_no_delta(listed, ledger.place.counted or {})
    if reason is not None and ledger.place.round:
        yield reason
