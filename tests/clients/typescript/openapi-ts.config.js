export default {
  input: "../../../docs/openapi.json",
  output: { path: "client", module: { extension: ".js" } },
  plugins: [
    "@hey-api/client-fetch",
    { name: "@hey-api/transformers", bigInt: true }, // ids are bigint
    { name: "@hey-api/sdk", transformer: true },
  ],
};
