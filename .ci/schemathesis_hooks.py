"""Test data that Schemathesis cannot derive from docs/openapi.json."""

import csv
import datetime
import io
import json
import re

import schemathesis
from hypothesis import strategies as st

# Bodies of imports, which JSON Schema cannot describe, with valid plants. Some of them
# may exist. They contain no ', since import removes some in CSV, and no control
# characters.
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters="'"), max_size=255)
PLANTS = st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), TEXT.filter(str.strip), TEXT), max_size=5)


def as_ndjson(plants):
    return "".join(json.dumps({"id": id, "name": name, "tag": tag}) + "\n" for id, name, tag in plants).encode()


def as_csv(plants):
    text = io.StringIO()
    csv.writer(text).writerows([("id", "name", "tag"), *plants])
    return text.getvalue().encode()


schemathesis.openapi.media_type("application/x-ndjson", PLANTS.map(as_ndjson))
schemathesis.openapi.media_type("text/csv", PLANTS.map(as_csv))

TAGS = st.lists(st.from_regex(r'(W/)?"[!#-~]*"', fullmatch=True), min_size=1, max_size=3).map(", ".join)
schemathesis.openapi.format("entity-tags", st.just("*") | TAGS)


@schemathesis.hook
def before_load_schema(context, schema):
    """Adapts the copy of the document to the limits of Schemathesis."""
    for operations in schema["paths"].values():
        for operation in operations.values():
            # The coverage phase ignores the pattern of headers, so that it never
            # generates what matches. It needs a format.
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "header" and "pattern" in parameter["schema"]:
                    format = "entity-tags"
                    if not parameter["name"].endswith("-Match"):
                        format = parameter["name"].lower()
                        schemathesis.openapi.format(format, st.from_regex(parameter["schema"]["pattern"], fullmatch=True))
                    parameter["schema"]["format"] = format
            # Examples of the bodies generated above must be bytes.
            for body in operation.get("requestBody", {}).get("content", {}).values():
                if isinstance(body.get("example"), str):
                    body["example"] = body["example"].encode()


TIME = re.compile(r"\d{4}-\d\d-\d\dT")


@schemathesis.hook
def filter_body(context, body):
    """Drops invalid bodies that JSON Schema considers valid: ids such as 1.0, which it
    treats as integers, while the API accepts only integer literals; and tokens that
    expire in the past."""
    if not isinstance(body, dict):
        return True
    if isinstance(body.get("id"), float) and body["id"].is_integer():
        return False
    expires = body.get("expires_at")
    return not (isinstance(expires, str) and TIME.match(expires) and expires[:10] <= datetime.date.today().isoformat())


@schemathesis.hook
def before_call(context, case, kwargs):
    """Makes the id in a plant that is put that of its path, and drops the place in a list
    that does not fit its order, which JSON Schema cannot require, and lets no request wait
    for changes. A write to selected plants needs a parameter that selects them, and time of changes must be in the calendar."""
    query = case.query or {}
    if case.path == "/plants" and isinstance(query.get("after"), str) and not (
        re.fullmatch(r"0|-?[1-9]\d{0,17}", query["after"]) and query.keys().isdisjoint({"sort", "created_after", "created_before"})
    ):
        del query["after"]
    if case.path == "/plants" and case.method in ("PATCH", "DELETE") and "max" in query and re.fullmatch(r"\d{1,4}", str(query["max"])):
        query["max"] = 10000  # more rows than a smaller one may be selected
    if case.path == "/plants" and case.method in ("PATCH", "DELETE") and query.keys().isdisjoint({"tag", "q", "created_after", "created_before"}):
        case.query = query | {"tag": ["schemathesis"]}
    if isinstance(query.get("after"), str) and TIME.match(query["after"]):  # perhaps 30 February
        query["after"] = "2026-11-25T00:00:00Z"
    if re.fullmatch(r"[0-9]+s", str((case.query or {}).get("wait"))) and int(case.query["wait"][:-1]) <= 60:
        case.query["wait"] = "0s"
    id = str((case.path_parameters or {}).get("id"))
    if case.method == "PUT" and isinstance(case.body, dict) and type(case.body.get("id")) is int and re.fullmatch(r"-?\d+", id):
        case.body["id"] = int(id)
