// What the clients of openapi-fetch and hey-api have in common.
import assert from "node:assert";
import { isLosslessNumber, parse, stringify } from "lossless-json";

export const id = 9007199254740993n; // 2^53 + 1, which JSON.parse turns into 2^53
export const [url, token] = process.argv.slice(2);
export const headers = { Authorization: `Bearer ${token}` };
export const csv = "id,name,tag\n1,Monstera,\n2,Salix,tree\n3,Acer,tree\n";
export const ndjson = `{"id":1,"name":"Monstera"}
{"id":2,"name":"Salix","tag":"tree"}
{"id":3,"name":"Acer","tag":"tree"}
{"id":${id - 1n},"name":"Aloe vera"}
{"id":${id},"name":"Ficus lyrata"}
`;

// parseJSON parses ids as bigint, to the last digit.
export const parseJSON = (text: string) =>
  parse(text, (key, value) => (!isLosslessNumber(value) ? value : key === "id" ? BigInt(value.value) : Number(value.value)));

// toJSON writes a bigint as a number.
export const toJSON = (value: unknown) => stringify(value)!;

// after returns the parameter of the next page.
export function after(response: Response): string | undefined {
  return response.headers.get("Link")?.match(/after=([\w-]+)/)?.[1];
}

// step prints name if got is as wanted.
export function step(name: string, got: unknown, want: unknown) {
  assert.deepStrictEqual(got, want, name);
  console.log(name);
}
