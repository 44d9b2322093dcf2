"""What Schemathesis cannot take from docs/openapi.json."""

import csv
import datetime
import io
import json
import re

import schemathesis
from hypothesis import strategies as st

# Imports: JSON Schema cannot describe bodies that are no JSON documents. These
# have valid plants, of which some may be there already. They are without ', as
# CSV takes some away, and without control characters.
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
    """Fits Schemathesis' copy of the document to its limits."""
    for operations in schema["paths"].values():
        for operation in operations.values():
            # The coverage phase makes headers of letters and digits alone, and so
            # no entity tags from their pattern: it needs a format.
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "header" and "pattern" in parameter["schema"]:
                    parameter["schema"]["format"] = "entity-tags"
            # Bodies that are made above can only have examples in bytes.
            for body in operation.get("requestBody", {}).get("content", {}).values():
                if "example" in body:
                    body["example"] = body["example"].encode()


TIME = re.compile(r"\d{4}-\d\d-\d\dT")


@schemathesis.hook
def filter_body(context, body):
    """Leaves out what JSON Schema cannot tell from what is right: ids such as 1.0,
    which it takes for integers, where the API's specification has none but integer
    literals; and a time in the past, at which no token can expire."""
    if not isinstance(body, dict):
        return True
    if isinstance(body.get("id"), float) and body["id"].is_integer():
        return False
    expires = body.get("expires_at")
    return not (isinstance(expires, str) and TIME.match(expires) and expires[:10] <= datetime.date.today().isoformat())

