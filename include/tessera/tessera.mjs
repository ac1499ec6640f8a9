// Runs what `tessera compile --emit wasm` writes: in browsers, Node, Deno, wherever WebAssembly has vectors of 128 bits.
//
//   import { Model } from "./tessera.mjs";
//   const model = await Model.load("model.wasm");                  // a URL, a Response, or bytes
//   const { scores } = model.run({ image: new Float32Array(3 * 224 * 224) });
//   scores.data, scores.dims                                       // a Float32Array, [1, 1000]
//
// A model is one instance of the module with its own memory, and runs on the thread that calls it: for several runs at
// a time, load one in each worker.

const ARRAYS = {
  f64: Float64Array, f32: Float32Array, i64: BigInt64Array, i32: Int32Array, i16: Int16Array, i8: Int8Array,
  u64: BigUint64Array, u32: Uint32Array, u16: Uint16Array, u8: Uint8Array,
  bool: Uint8Array,                    // 0 or 1 each
  f16: Uint16Array, bf16: Uint16Array, // the bits of each element
}; // of others, fewer than 8 bits or floats of 8 bits: the bytes

export class TesseraError extends Error {
  name = "TesseraError";
}

async function bytesOf(source) {
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return source;
  const response = source instanceof Response ? source : await fetch(source);
  if (!response.ok) throw new TesseraError(`${response.url || source}: HTTP ${response.status} ${response.statusText}`);
  return response.arrayBuffer();
}

// What the compiler says of the model: its producer, inputs, outputs, checks.
function descriptionOf(module) {
  const sections = WebAssembly.Module.customSections(module, "tessera");
  if (sections.length !== 1) throw new TesseraError("no module that `tessera compile --emit wasm` wrote: it has no section 'tessera'");
  const description = JSON.parse(new TextDecoder().decode(sections[0]));
  if (description.format !== 1) throw new TesseraError(`the module's format ${description.format} is newer than this loader (1)`);
  return description;
}

export class Model {
  // `source`: a URL, a Response, an ArrayBuffer or a view of one. Rejects with a TesseraError for what is no model of
  // ours, with WebAssembly.CompileError for what no engine takes.
  static async load(source) {
    const module = await WebAssembly.compile(await bytesOf(source));
    const description = descriptionOf(module);
    const { exports } = await WebAssembly.instantiate(module);
    return new Model(exports, description);
  }

  #exports;
  #checks;

  constructor(exports, description) {
    this.#exports = exports;
    this.#checks = description.checks.map((check) => ({ ...check, ok: this.#view(check.offset, BigInt64Array, 8) }));
    const tensor = ({ name, dtype, dims, offset, bytes }) =>
      Object.freeze({ name, dtype, dims, data: this.#view(offset, ARRAYS[dtype] ?? Uint8Array, bytes) });
    this.name = description.model;
    this.producer = description.producer;
    // {name, dtype, dims, data} each; `data` is the memory that a run reads or writes, which stays where it is.
    this.inputs = description.inputs.map(tensor);
    this.outputs = description.outputs.map(tensor);
    this.reset();
  }

  #view(offset, Elements, bytes) {
    const { memory, tessera_memory } = this.#exports;
    return new Elements(memory.buffer, tessera_memory.value + offset, bytes / Elements.BYTES_PER_ELEMENT);
  }

  // Gives the model's states, if it has any, their values of before the first run.
  reset() {
    this.#exports.tessera_reset?.();
  }

  // `values`: arrays in the order of the inputs, or by their names, with as many elements as the inputs have; what is left
  // out keeps what it has. Answers {NAME: {data, dims, dtype}}, in memory of their own. Throws a TesseraError for other
  // arrays, and for data that the model was not compiled for.
  run(values = {}) {
    const given = Array.isArray(values) ? values.map((value, i) => [i, value]) : Object.entries(values);
    for (const [key, value] of given) {
      const input = Array.isArray(values) ? this.inputs[key] : this.inputs.find(({ name }) => name === key);
      const known = this.inputs.map(({ name }) => `'${name}'`).join(", ");
      if (!input) throw new TesseraError(`there is no input ${JSON.stringify(key)}: the model has ${known}`);
      const expected = `${input.data.length} elements (${input.dtype} [${input.dims}])`;
      if (value.length !== input.data.length)
        throw new TesseraError(`input '${input.name}' has ${expected}; ${value.length} were given`);
      input.data.set(value);
    }
    this.execute();
    const entries = this.outputs.map(({ name, dtype, dims, data }) => [name, { data: data.slice(), dims, dtype }]);
    return Object.fromEntries(entries);
  }

  // The run alone: of what stands in `inputs`, into `outputs`. Copies and allocates nothing.
  execute() {
    const answer = this.#exports.tessera_run();
    if (answer === 0) return;
    const failed = this.#checks.find(({ ok }) => ok[0] === 0n);
    throw new TesseraError(failed ? `${failed.what} is not ${failed.legal}` : `the run stopped (${answer})`);
  }
}
