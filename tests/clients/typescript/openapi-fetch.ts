// Uses openapi-fetch with the types that openapi-typescript generates from the OpenAPI
// document. It prints each step of TestClients that succeeds.
import createClient from "openapi-fetch";
import type { paths } from "./api.js";
import { after, csv, headers, id, ndjson, parseJSON, step, toJSON, url } from "./shared.js";

class ExactResponse extends Response {
  async json() {
    return parseJSON(await this.text());
  }
}

const client = createClient<paths>({
  baseUrl: url,
  headers,
  bodySerializer: toJSON,
  fetch: async (request) => {
    const response = await fetch(request);
    const exact = new ExactResponse(response.body, response);
    exact.headers.set("Content-Length", "1"); // without one, openapi-fetch calls JSON.parse, not json()
    return exact;
  },
});
const path = { id };

await client.POST("/plants", { body: { id: id - 1n, name: "Aloe vera" } });
const created = await client.POST("/plants", { body: { id, name: "Ficus", tag: "tree" } });
step("create", [created.data, created.response.headers.get("Location")], [{ name: "Ficus", tag: "tree" }, `/plants/${id}`]);

const conflict = await client.POST("/plants", { body: { id, name: "Salix" } });
step("conflict", [conflict.response.status, conflict.error?.error], [409, 40901]);

const invalid = await client.POST("/plants", { body: { id: 1n, name: "" } });
step("invalid", [invalid.response.status, invalid.error?.error], [400, 40006]);

const plant = await client.GET("/plants/{id}", { params: { path } });
step("get", [plant.data?.id, plant.data?.name], [id, "Ficus"]);

const etag = plant.response.headers.get("ETag")!;
const unchanged = await client.GET("/plants/{id}", { params: { path, header: { "If-None-Match": etag } } });
step("unchanged", unchanged.response.status, 304);

const replacement = { params: { path, header: { "If-Match": etag } }, body: { name: "Ficus lyrata", tag: "tree" } };
const replaced = await client.PUT("/plants/{id}", replacement);
step("replace", [replaced.response.status, replaced.data?.name], [200, "Ficus lyrata"]);

const stale = await client.PUT("/plants/{id}", replacement);
step("stale", [stale.response.status, stale.error?.error], [412, 41201]);

const patched = await client.PATCH("/plants/{id}", { params: { path }, body: { tag: null } });
step("patch", [patched.data?.name, patched.data?.tag], ["Ficus lyrata", undefined]);

const imported = await client.POST("/plants/import", {
  headers: { "Content-Type": "text/csv" },
  body: csv,
  bodySerializer: (body) => body,
});
step("import", imported.data?.created, 3);

const ids: bigint[] = [];
for (let query: { limit: number; after?: string } | undefined = { limit: 2 }; query; ) {
  const page = await client.GET("/plants", { params: { query } });
  ids.push(...page.data!.map((p) => p.id));
  const next = after(page.response);
  query = next === undefined ? undefined : { limit: 2, after: next };
}
step("pages", ids, [1n, 2n, 3n, id - 1n, id]);

const exported = await client.GET("/plants/export", { parseAs: "text" });
step("export", exported.data, ndjson);

const changes = await client.GET("/plants/changes", { params: { query: { after: "0" } } });
step("changes", (changes.data as { changes: { id: bigint }[] }).changes.map((c) => c.id), [1n, 2n, 3n, id - 1n, id]);

const issued = await client.POST("/tokens", { body: { name: "client", scopes: ["plants:read"] } });
step("issue token", issued.data?.token.startsWith(issued.data.id), true);

const tokens = await client.GET("/tokens");
step("list tokens", tokens.data?.map((t) => t.name), ["client"]);

const revoked = await client.DELETE("/tokens/{id}", { params: { path: { id: issued.data!.id } } });
step("revoke token", revoked.response.status, 204);

const tags = await client.GET("/plants/tags");
step("list tags", tags.data?.[0], { tag: "tree", plants: 2 });

const merged = await client.PATCH("/plants", { params: { query: { tag: ["tree", "palm"] } }, body: { tag: "shrub" } });
step("patch many", merged.data?.merged, 2);

const removed = await client.DELETE("/plants", { params: { query: { tag: ["palm", "shrub"] } } });
step("delete many", removed.data?.deleted, 2);

const deleted = await client.DELETE("/plants/{id}", { params: { path: { id: plant.data!.id } } });
const gone = await client.GET("/plants/{id}", { params: { path } });
step("delete", [deleted.response.status, gone.response.status, gone.error?.error], [204, 404, 40401]);
