// Runs a WebAssembly model under Node: wasm_run.mjs MODEL.wasm RUNS INPUT.bin... writes out0.bin, out1.bin, ... and prints
// as JSON what the module says of its outputs; "error" instead when the run stopped.
import { readFileSync, writeFileSync } from "node:fs";
import { Model } from "../../include/tessera/tessera.mjs";

const [path, runs, ...files] = process.argv.slice(2);
const model = await Model.load(readFileSync(path));
const arrays = files.map((file, i) => {
  const bytes = readFileSync(file);
  const Elements = model.inputs[i].data.constructor;
  return new Elements(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
});
let outputs = {};
try {
  for (let run = 0; run < Number(runs); ++run) outputs = model.run(arrays);
} catch (error) {
  if (error.name !== "TesseraError") throw error;
  console.log(JSON.stringify({ error: error.message }));
  process.exit(0);
}
Object.values(outputs).forEach(({ data }, i) => writeFileSync(`out${i}.bin`, new Uint8Array(data.buffer)));
console.log(JSON.stringify(Object.entries(outputs).map(([name, { dtype, dims }]) => ({ name, dtype, dims }))));
