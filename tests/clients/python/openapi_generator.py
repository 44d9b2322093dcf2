"""Uses the client that OpenAPI Generator generates from the OpenAPI document. Prints each
step of TestClients that succeeds."""

import re
import sys

import openapi_client as api
from openapi_client.exceptions import ApiException

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


def failure(call, *args, **kwargs):
    """The status and the code of a failed call."""
    try:
        return call(*args, **kwargs)
    except ApiException as e:
        return e.status, e.data and e.data.error


client = api.ApiClient(api.Configuration(host=sys.argv[1], access_token=sys.argv[2]))
plants, tokens = api.PlantsApi(client), api.TokensApi(client)

plants.create_plant(api.NewPlant(id=ID - 1, name="Aloe vera"))
created = plants.create_plant_with_http_info(api.NewPlant(id=ID, name="Ficus", tag="tree"))
step("create", (created.data.name, created.data.tag, created.headers["Location"]), ("Ficus", "tree", f"/plants/{ID}"))

step("conflict", failure(plants.create_plant, api.NewPlant(id=ID, name="Salix")), (409, 40901))

# The client itself rejects invalid plants.
step("invalid", failure(plants.create_plant, api.NewPlant.model_construct(id=1, name="")), (400, 40006))

plant = plants.get_plant_with_http_info(ID)
step("get", (plant.data.id, plant.data.name), (ID, "Ficus"))

etag = plant.headers["ETag"]
step("unchanged", failure(plants.get_plant, ID, if_none_match=etag), (304, None))

replacement = api.PlantReplacement(name="Ficus lyrata", tag="tree")
step("replace", plants.put_plant(ID, replacement, if_match=etag).name, "Ficus lyrata")

step("stale", failure(plants.put_plant, ID, replacement, if_match=etag), (412, 41201))

patched = plants.patch_plant(ID, api.PlantPatch(tag=None))
step("patch", (patched.name, patched.tag), ("Ficus lyrata", None))

step("import", plants.import_plants(CSV, _content_type="text/csv").created, 3)

ids, after = [], None
while True:
    page = plants.list_plants_with_http_info(limit=2, after=after)
    ids += [p.id for p in page.data]
    if "Link" not in page.headers:
        break
    after = re.search(r"after=([\w-]+)", page.headers["Link"])[1]
step("pages", ids, [1, 2, 3, ID - 1, ID])

step("export", plants.export_plants().decode(), NDJSON)

step("changes", [c.plant.id for c in plants.list_changes(after="0").changes], [1, 2, 3, ID - 1, ID])

issued = tokens.create_token(api.NewToken(name="client", scopes=[api.Scope.PLANTS_COLON_READ]))
step("issue token", issued.token.startswith(issued.id), True)

step("list tokens", [t.name for t in tokens.list_tokens()], ["client"])

step("revoke token", tokens.revoke_token_with_http_info(issued.id).status_code, 204)

step("list tags", plants.list_tags()[0], api.TagCount(tag="tree", plants=2))

step("patch many", plants.patch_plants(api.PlantPatch(tag="shrub"), tag=["tree", "palm"]).merged, 2)

step("delete many", plants.delete_plants(tag=["palm", "shrub"]).deleted, 2)

deleted = plants.delete_plant_with_http_info(plant.data.id)
step("delete", (deleted.status_code, failure(plants.get_plant, ID)), (204, (404, 40401)))
