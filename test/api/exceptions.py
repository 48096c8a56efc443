"""What may be refused with 422 although it is valid by the description of its API.

exceptions.json has the rules that JSON Schema cannot express, each with its reason and, for each
operation that has it, a request that shows it: the parts path, query and header, and the body. A
list of requests is sent in its order, and the last is refused; those before may be of another
operation, and "$id" is the id of the response before. Called with the URLs of APIs, each as URL or URL=TOKEN, this module tests that no
rule is stale: that each of the requests is still valid and still refused for its reason.
"""

import json
import pathlib
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import jsonschema_rs

RULES = json.loads(pathlib.Path(__file__).with_name("exceptions.json").read_text())
INVALID = "urn:scylla-outbox:problem:invalid-fields"


def excepted(operation, problem):
    """Whether a problem of a valid request has rules as its only reasons."""
    rules = [r for r in RULES if operation in r["shown_by"]]
    if problem["type"] != INVALID:
        return any(r.get("type") == problem["type"] for r in rules)
    wrong = [(re.sub(r"\[\d+\]", "[]", e["location"]), e["message"]) for e in problem.get("errors", [])]
    return bool(wrong) and all(any(r.get("location") == at and r["message"] in why for r in rules) for at, why in wrong)


def invalid(document, operation, request):
    """What the description says against a request."""
    method, path = request.get("operation", operation).split()
    described = document["paths"][path][method.lower()]
    pairs = []
    for p in described.get("parameters", []):
        given = request.get(p["in"], {})
        if p["name"] in given:
            pairs.append((p["name"], p["schema"], given[p["name"]]))
        elif p.get("required"):
            return p["name"] + " is missing"
    if "body" in request:
        pairs.append(("body", described["requestBody"]["content"]["application/json"]["schema"], request["body"]))
    elif described.get("requestBody", {}).get("required"):
        return "the body is missing"
    for name, schema, value in pairs:
        whole = {"allOf": [schema], "components": document["components"]}
        for e in jsonschema_rs.validator_for(whole, validate_formats=True).iter_errors(value):
            return f"{name}: {e.message}"
    return None


def send(url, token, operation, request):
    """The status and the body of the response."""
    method, path = request.get("operation", operation).split()
    for name, value in request.get("path", {}).items():
        path = path.replace("{" + name + "}", urllib.parse.quote(value))
    if query := request.get("query"):
        path += "?" + urllib.parse.urlencode(query, doseq=True)
    headers = {"Content-Type": "application/json", **request.get("header", {})}
    if token:
        headers["Authorization"] = "Bearer " + token
    body = json.dumps(request["body"]).encode() if "body" in request else None
    while True:
        try:
            with urllib.request.urlopen(urllib.request.Request(url + path, body, headers, method=method)) as r:
                return r.status, r.read()
        except urllib.error.HTTPError as e:
            if e.code != 429:
                return e.code, e.read()
            time.sleep(float(e.headers.get("Retry-After", "1")))


def stale(apis):
    """What is wrong with the rules."""
    documents = [(url, token, json.load(urllib.request.urlopen(url + "/openapi.json"))) for url, token in apis]
    for rule in RULES:
        for operation, requests in rule["shown_by"].items():
            at = f"{operation}, {rule.get('location', rule.get('type'))}"
            requests = requests if isinstance(requests, list) else [requests]
            wanted = [r.get("operation", operation).split() for r in requests]
            owners = [d for d in documents if all(m.lower() in d[2]["paths"].get(p, {}) for m, p in wanted)]
            if not owners:
                yield f"{at}: no API has the operations"
            wrong = []
            for url, token, document in owners:
                text = b"{}"
                for request in requests:
                    if request.get("path", {}).get("id") == "$id":
                        request = {**request, "path": {"id": json.loads(text)["id"]}}
                    if problem := invalid(document, operation, request):
                        wrong.append(f"{at}: the request is not valid: {problem}")
                    status, text = send(url, token, operation, request)
                problem = json.loads(text) if status == 422 else {}
                own = {(re.sub(r"\[\d+\]", "[]", e["location"]), e["message"]) for e in problem.get("errors", [])}
                if problem.get("type") != rule.get("type", INVALID) or (
                    "location" in rule and not any(rule["location"] == a and rule["message"] in m for a, m in own)
                ):
                    wrong.append(f"{at}: answered with {status} {text[:500].decode()}")
            if len(wrong) >= len(owners):  # of several APIs one may have no such rule, such as that of reasons
                yield from wrong


if __name__ == "__main__":
    found = list(stale([(a.partition("=")[0], a.partition("=")[2]) for a in sys.argv[1:]]))
    print("\n".join(f"FAILED: exceptions.json: {f}" for f in found), file=sys.stderr)
    sys.exit(bool(found))
