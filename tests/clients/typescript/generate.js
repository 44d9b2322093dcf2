// Generates the types of openapi-fetch, with bigint for integers that a number may round.
import { writeFileSync } from "node:fs";
import openapiTS, { astToString } from "openapi-typescript";
import ts from "typescript";

const bigint = ts.factory.createKeywordTypeNode(ts.SyntaxKind.BigIntKeyword);
const types = await openapiTS(new URL("../../../docs/openapi.json", import.meta.url), {
  transform: (schema) => (schema.format === "int64" ? bigint : undefined),
});
writeFileSync("api.ts", astToString(types));
