"""The next event of an aggregate by CQL alone: docs/protocol.md, step by step.

writer.py HOST PORT WRITERS CHANGES AGGREGATE... adds 1 to the balance of each account CHANGES times by
each of WRITERS concurrent writers, and loses every fourth response. Table accounts is its own.
"""
import json
import random
import sys
import threading
import time
import uuid

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import FallthroughRetryPolicy
from cassandra.query import UNSET_VALUE

COLUMNS = "aggregate_id, seq, event_id, aggregate_type, event_type, payload, content_type, headers, created_at, deliver_at"


class Writer:
    def __init__(self, host, port):
        def profile(level):
            return ExecutionProfile(retry_policy=FallthroughRetryPolicy(), consistency_level=level,
                                    serial_consistency_level=ConsistencyLevel.SERIAL, request_timeout=3)
        self.cluster = Cluster([host], port=port, execution_profiles={
            EXEC_PROFILE_DEFAULT: profile(ConsistencyLevel.LOCAL_QUORUM), "serial": profile(ConsistencyLevel.SERIAL)})
        self.session = self.cluster.connect("outbox")
        self.session.use_client_timestamp = False  # step 4: the database's time
        prepare = self.session.prepare
        self.load = prepare("SELECT balance, version FROM accounts WHERE id = ?")
        self.store = prepare("INSERT INTO accounts (id, balance, version) VALUES (?, ?, ?) USING TIMESTAMP ?")
        self.since = prepare(f"SELECT {COLUMNS} FROM outbox_messages WHERE aggregate_id = ? AND seq >= ?")
        insert = f"INSERT INTO outbox_messages ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        self.insert, self.settle = prepare(insert + " IF NOT EXISTS"), prepare(insert)

    def apply(self, row):
        """Step 5: can be repeated, late and by several processes."""
        self.session.execute(self.store, (row.aggregate_id, json.loads(row.payload)["balance"], row.seq, row.seq))

    def change(self, aggregate):
        event_id, first = uuid.uuid4(), None
        while True:
            row = self.session.execute(self.load, (aggregate,)).one()  # step 1
            balance, version = (row.balance, row.version) if row else (0, 0)
            event = (aggregate, version + 1, event_id, "account", "BalanceChanged",
                     json.dumps({"balance": balance + 1}).encode(), "application/json", {"writer": "python"}, int(time.time() * 1000), UNSET_VALUE)
            first = first or version + 1
            while True:
                found = sorted(self.session.execute(self.since, (aggregate, first), execution_profile="serial"), key=lambda r: r.seq)  # step 2
                mine = next((r for r in found if r.event_id == event_id), None)
                others = [r for r in found if r.seq > version]
                if mine or others:
                    row = [UNSET_VALUE if value is None else value for value in found[-1]]  # null would delete
                    self.session.execute(self.settle, row)  # step 4
                    break
                try:
                    applied = self.session.execute(self.insert, event).was_applied  # step 3
                    if random.random() < 0.25:
                        raise TimeoutError("the response is lost")
                except Exception as error:  # the outcome is unknown
                    print("again:", error, file=sys.stderr)
                    continue
                if applied:
                    mine = next(r for r in self.session.execute(self.since, (aggregate, first), execution_profile="serial") if r.event_id == event_id)
                    break
            if mine:
                if random.random() < 0.7:  # some die between their event and their row
                    self.apply(mine)
                return
            for r in others:  # the rows lag: apply the events of others first
                self.apply(r)


def main():
    host, port, writers, changes = sys.argv[1], *map(int, sys.argv[2:5])
    aggregates, failed = sys.argv[5:], []
    writer = Writer(host, port)

    def work():
        try:
            for _ in range(changes):
                for aggregate in aggregates:
                    writer.change(aggregate)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=work) for _ in range(writers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    writer.cluster.shutdown()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
