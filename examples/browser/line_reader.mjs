// PP-OCR's recogniser on the pixels of one line: the same steps as examples/text_read/line_input.cpp and ctc.cpp.
import { Model } from "./tessera.mjs";

export class LineReader {
  static async load(model, letters) {
    const [network, text] = await Promise.all([Model.load(model), fetch(letters).then((response) => response.text())]);
    return new LineReader(network, [...text.replace(/\n$/, "").split("\n"), " "]);
  }

  constructor(network, letters) {
    this.network = network;
    this.letters = letters;
    [, , this.height, this.width] = network.inputs[0].dims;
  }

  // `pixels`: RGBA bytes of height x width, row by row. Answers the text, and the mean probability of its letters.
  read(pixels) {
    const plane = this.height * this.width;
    const input = this.network.inputs[0].data;
    for (let i = 0; i < plane; ++i)
      for (let channel = 0; channel < 3; ++channel) // blue first, from -1 to 1
        input[(2 - channel) * plane + i] = pixels[4 * i + channel] / 127.5 - 1;
    this.network.execute();
    const { data, dims } = this.network.outputs[0];
    return this.#decode(data, dims.at(-1));
  }

  // Of each step the likeliest letter; repeated ones and class 0, which is none, are left out.
  #decode(probabilities, classes) {
    let text = "", sum = 0, count = 0, before = 0;
    for (let begin = 0; begin < probabilities.length; begin += classes) {
      let best = 0;
      for (let i = 1; i < classes; ++i) if (probabilities[begin + i] > probabilities[begin + best]) best = i;
      if (best !== 0 && best !== before) {
        text += this.letters[best - 1];
        sum += probabilities[begin + best];
        ++count;
      }
      before = best;
    }
    return { text, confidence: count ? sum / count : 0 };
  }
}
