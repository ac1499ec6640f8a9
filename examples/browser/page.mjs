// The page: draws the line, has it read, shows text and time. `?text=...` is the text to begin with.
import { LineReader } from "./line_reader.mjs";

const canvas = document.getElementById("line");
const context = canvas.getContext("2d", { willReadFrequently: true });
const text = document.getElementById("text"), file = document.getElementById("file");
const output = document.getElementById("read"), note = document.getElementById("note");

function clear() {
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
}

function draw(line) {
  clear();
  context.fillStyle = "#111";
  context.textBaseline = "middle";
  let size = 34;
  do context.font = `${size}px "DejaVu Sans", Arial, sans-serif`;
  while (context.measureText(line).width > canvas.width - 16 && --size > 8);
  context.fillText(line, 8, canvas.height / 2);
}

function read(reader) {
  const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data;
  const begin = performance.now();
  const { text, confidence } = reader.read(pixels);
  const took = performance.now() - begin;
  output.textContent = text;
  note.textContent = `${Math.round(100 * confidence)} % sure, ${took.toFixed(1)} ms on one thread; model by ${reader.network.producer}`;
}

clear();
note.textContent = "loading the model";
try {
  const reader = await LineReader.load("recogniser.wasm", "characters.txt");
  [canvas.width, canvas.height] = [reader.width, reader.height];
  const typed = () => {
    draw(text.value);
    read(reader);
  };
  text.addEventListener("input", typed);
  file.addEventListener("change", async () => {
    const picture = await createImageBitmap(file.files[0]);
    const width = Math.min(canvas.width, Math.ceil((picture.width * canvas.height) / picture.height));
    clear();
    context.drawImage(picture, 0, 0, width, canvas.height);
    read(reader);
  });
  text.value = new URLSearchParams(location.search).get("text") ?? text.value;
  typed();
  document.body.dataset.ready = "1";
} catch (error) {
  note.textContent = String(error);
  document.body.dataset.failed = "1";
}
