"""Three consumers of the events of orders: inventory, email and analytics.

    python3 consumers.py --consumer inventory --state stock.json

It needs the standard library alone. Delivery is at least once: each consumer stores its
effect together with the numbers of the applied events of the order, and acknowledges
afterwards. An event that is delivered again has no effect. The events of an order are in
several topics, so a cancellation may come before its order; the effects do not depend on
that.
"""

import argparse
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request


class Subscription:
    """A subscription by its HTTP API."""

    def __init__(self, api, name, token=""):
        self.url = f"{api}/v1/subscriptions/{name}/"
        self.headers = {"Content-Type": "application/json"}
        if token:
            self.headers["Authorization"] = "Bearer " + token

    def post(self, operation, body):
        request = urllib.request.Request(self.url + operation, json.dumps(body).encode(), self.headers)
        with urllib.request.urlopen(request, timeout=40) as response:  # raises for every status but 2xx
            return json.load(response)

    def receive(self, most, wait):
        return self.post("receive", {"max": most, "wait": wait})["messages"]

    def ack(self, receipts):
        """Return once every receipt is settled, or its message comes again."""
        while True:
            try:
                self.post("ack", {"receipts": receipts})
                return
            except urllib.error.HTTPError as error:
                if error.code != 503:
                    print("ack:", error.code, error.read().decode(), file=sys.stderr)
                    return
            except OSError as error:
                print("ack:", error, file=sys.stderr)
            time.sleep(1)


def inventory(state, message, order):
    sign = {"OrderCreated": 1, "OrderCancelled": -1}.get(message["event_type"], 0)
    for line in order["lines"] if sign else []:
        state["numbers"][line["sku"]] = state["numbers"].get(line["sku"], 0) + sign * line["quantity"]


def email(state, message, order):
    number = message["aggregate_id"]
    if message["event_type"] == "OrderCreated":
        state["mails"][message["event_id"]] = f"Your order {number} of {order['total']} {order['currency']} was received."
    elif message["event_type"] == "OrderCancelled":
        state["mails"][message["event_id"]] = f"Your order {number} was cancelled."


def analytics(state, message, order):
    sign = {"OrderCreated": 1, "OrderCancelled": -1}.get(message["event_type"], 0)
    if sign:
        state["numbers"][order["country"]] = state["numbers"].get(order["country"], 0) + sign


def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return {"applied": {}, "numbers": {}, "mails": {}}


def save(path, state):
    """Replace the file, so that it has either the old or the new state after a crash."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(state, file)
    os.replace(path + ".new", path)


def main():
    consumers = {"inventory": inventory, "email": email, "analytics": analytics}
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--api", default="http://127.0.0.1:8082")
    args.add_argument("--consumer", choices=consumers, default="inventory")
    args.add_argument("--subscription", help="default: the name of the consumer")
    args.add_argument("--state", default="state.json", help="file with the effects")
    args.add_argument("--until-empty", action="store_true", help="exit when no message has come for 2 s")
    args = args.parse_args()

    stopping = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.append(True))
    subscription = Subscription(args.api, args.subscription or args.consumer, os.environ.get("OUTBOX_API_TOKEN", ""))
    state = load(args.state)
    while not stopping:
        try:
            messages = subscription.receive(100, "2s" if args.until_empty else "20s")
        except (urllib.error.HTTPError, OSError) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code not in (429, 503):
                raise
            print("receive:", error, file=sys.stderr)
            time.sleep(1)
            continue
        if not messages:
            if args.until_empty:
                return
            continue
        for message in messages:
            number = message["aggregate_id"]
            applied = state["applied"].setdefault(number, [])
            if message["sequence"] in applied:
                continue  # it was delivered before
            consumers[args.consumer](state, message, message["data"])
            applied.append(message["sequence"])
        save(args.state, state)
        subscription.ack([message["receipt"] for message in messages])


if __name__ == "__main__":
    main()
