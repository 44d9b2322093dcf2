// Uses the client that @hey-api/openapi-ts generates from the OpenAPI document. It prints
// each step of TestClients that succeeds.
import { client } from "./client/client.gen.js";
import * as api from "./client/sdk.gen.js";
import { after, csv, headers, id, ndjson, parseJSON, step, toJSON, url } from "./shared.js";

client.setConfig({ baseUrl: url, headers, bodySerializer: toJSON });
// The client calls JSON.parse, and then BigInt on ids, which may be strings.
client.interceptors.response.use(async (response) => {
  if (!response.headers.get("Content-Type")?.startsWith("application/json")) return response;
  const value = parseJSON(await response.text());
  return new Response(JSON.stringify(value, (_, v) => (typeof v === "bigint" ? v.toString() : v)), response);
});
const path = { id };

await api.createPlant({ body: { id: id - 1n, name: "Aloe vera" } });
const created = await api.createPlant({ body: { id, name: "Ficus", tag: "tree" } });
step("create", [created.data, created.response.headers.get("Location")], [{ name: "Ficus", tag: "tree" }, `/plants/${id}`]);

const conflict = await api.createPlant({ body: { id, name: "Salix" } });
step("conflict", [conflict.response.status, conflict.error?.error], [409, 40901]);

const invalid = await api.createPlant({ body: { id: 1n, name: "" } });
step("invalid", [invalid.response.status, invalid.error?.error], [400, 40006]);

const plant = await api.getPlant({ path });
step("get", [plant.data?.id, plant.data?.name], [id, "Ficus"]);

const etag = plant.response.headers.get("ETag")!;
const unchanged = await api.getPlant({ path, headers: { "If-None-Match": etag } });
step("unchanged", unchanged.response.status, 304);

const replacement = { path, headers: { "If-Match": etag }, body: { name: "Ficus lyrata", tag: "tree" } };
const replaced = await api.putPlant(replacement);
step("replace", [replaced.response.status, replaced.data?.name], [200, "Ficus lyrata"]);

const stale = await api.putPlant(replacement);
step("stale", [stale.response.status, stale.error?.error], [412, 41201]);

const patched = await api.patchPlant({ path, body: { tag: null } });
step("patch", [patched.data?.name, patched.data?.tag], ["Ficus lyrata", undefined]);

const imported = await api.importPlants({ body: new Blob([csv]) });
step("import", imported.data?.created, 3);

const ids: bigint[] = [];
for (let query: { limit: number; after?: string } | undefined = { limit: 2 }; query; ) {
  const page = await api.listPlants({ query });
  ids.push(...page.data!.map((p) => p.id));
  const next = after(page.response);
  query = next === undefined ? undefined : { limit: 2, after: next };
}
step("pages", ids, [1n, 2n, 3n, id - 1n, id]);

const exported = await api.exportPlants();
step("export", await exported.data?.text(), ndjson);

const changes = await api.listChanges({ query: { after: "0" } });
step("changes", changes.data?.changes.map((c) => c.id), [1n, 2n, 3n, id - 1n, id]);

const issued = await api.createToken({ body: { name: "client", scopes: ["plants:read"] } });
step("issue token", issued.data?.token.startsWith(issued.data.id), true);

const tokens = await api.listTokens();
step("list tokens", tokens.data?.map((t) => t.name), ["client"]);

const revoked = await api.revokeToken({ path: { id: issued.data!.id } });
step("revoke token", revoked.response.status, 204);

const tags = await api.listTags();
step("list tags", tags.data?.[0], { tag: "tree", plants: 2 });

const merged = await api.patchPlants({ query: { tag: ["tree", "palm"] }, body: { tag: "shrub" } });
step("patch many", merged.data?.merged, 2);

const removed = await api.deletePlants({ query: { tag: ["palm", "shrub"] } });
step("delete many", removed.data?.deleted, 2);

const deleted = await api.deletePlant({ path: { id: plant.data!.id } });
const gone = await api.getPlant({ path });
step("delete", [deleted.response.status, gone.response.status, gone.error?.error], [204, 404, 40401]);
