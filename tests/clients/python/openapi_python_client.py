"""Uses the client that openapi-python-client generates from the OpenAPI document. Prints
each step of TestClients that succeeds."""

import io
import re
import sys

from plant_store.api.plants import (create_plant, delete_plant, delete_plants, export_plants, get_plant, import_plants,
                                    list_changes, list_plants, list_tags, patch_plant, patch_plants, put_plant)
from plant_store.api.tokens import create_token, list_tokens, revoke_token
from plant_store.client import AuthenticatedClient
from plant_store.models import NewPlant, NewToken, PlantPatch, PlantReplacement, Scope
from plant_store.types import UNSET, File

ID = 9007199254740993  # 2^53 + 1
CSV = b"id,name,tag\n1,Monstera,\n2,Salix,tree\n3,Acer,tree\n"
NDJSON = f"""{{"id":1,"name":"Monstera"}}
{{"id":2,"name":"Salix","tag":"tree"}}
{{"id":3,"name":"Acer","tag":"tree"}}
{{"id":{ID - 1},"name":"Aloe vera"}}
{{"id":{ID},"name":"Ficus lyrata"}}
"""


def step(name, got, want):
    assert got == want, f"{name}: got {got}, want {want}"
    print(name)


client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2], raise_on_unexpected_status=True)

create_plant.sync(client=client, body=NewPlant(id=ID - 1, name="Aloe vera"))
created = create_plant.sync_detailed(client=client, body=NewPlant(id=ID, name="Ficus", tag="tree"))
step("create", (created.parsed.name, created.parsed.tag, created.headers["Location"]), ("Ficus", "tree", f"/plants/{ID}"))

conflict = create_plant.sync_detailed(client=client, body=NewPlant(id=ID, name="Salix"))
step("conflict", (conflict.status_code, conflict.parsed.error), (409, 40901))

invalid = create_plant.sync_detailed(client=client, body=NewPlant(id=1, name=""))
step("invalid", (invalid.status_code, invalid.parsed.error), (400, 40006))

plant = get_plant.sync_detailed(ID, client=client)
step("get", (plant.parsed.id, plant.parsed.name), (ID, "Ficus"))

etag = plant.headers["ETag"]
unchanged = get_plant.sync_detailed(ID, client=client, if_none_match=etag)
step("unchanged", (unchanged.status_code, unchanged.parsed), (304, None))

replacement = PlantReplacement(name="Ficus lyrata", tag="tree")
replaced = put_plant.sync_detailed(ID, client=client, body=replacement, if_match=etag)
step("replace", (replaced.status_code, replaced.parsed.name), (200, "Ficus lyrata"))

stale = put_plant.sync_detailed(ID, client=client, body=replacement, if_match=etag)
step("stale", (stale.status_code, stale.parsed.error), (412, 41201))

patched = patch_plant.sync(ID, client=client, body=PlantPatch(tag=None))
step("patch", (patched.name, patched.tag), ("Ficus lyrata", UNSET))

step("import", import_plants.sync(client=client, body=File(io.BytesIO(CSV))).created, 3)

ids, after = [], UNSET
while True:
    page = list_plants.sync_detailed(client=client, limit=2, after=after)
    ids += [p.id for p in page.parsed]
    if "Link" not in page.headers:
        break
    after = re.search(r"after=([\w-]+)", page.headers["Link"])[1]
step("pages", ids, [1, 2, 3, ID - 1, ID])

step("export", export_plants.sync(client=client).payload.read().decode(), NDJSON)

step("changes", [c.plant.id for c in list_changes.sync(client=client, after="0").changes], [1, 2, 3, ID - 1, ID])

issued = create_token.sync(client=client, body=NewToken(name="client", scopes=[Scope.PLANTSREAD]))
step("issue token", issued.token.startswith(issued.id), True)

step("list tokens", [t.name for t in list_tokens.sync(client=client)], ["client"])

step("revoke token", revoke_token.sync_detailed(issued.id, client=client).status_code, 204)

step("list tags", list_tags.sync(client=client)[0].to_dict(), {"tag": "tree", "plants": 2})

step("patch many", patch_plants.sync(client=client, tag=["tree", "palm"], body=PlantPatch(tag="shrub")).merged, 2)

step("delete many", delete_plants.sync(client=client, tag=["palm", "shrub"]).deleted, 2)

deleted = delete_plant.sync_detailed(plant.parsed.id, client=client)
gone = get_plant.sync_detailed(ID, client=client)
step("delete", (deleted.status_code, gone.status_code, gone.parsed.error), (204, 404, 40401))
