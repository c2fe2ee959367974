// npm's package `ollama`.
const { Ollama } = require("ollama");
const { url, model, tell, all } = require("./telling.cjs");

const client = new Ollama({ host: url });
const messages = [{ role: "user", content: "What is the capital of France?" }];
const options = { num_predict: 3, temperature: 0 };

async function aborted() {
  const stream = await client.chat({ model, messages, options: { ...options, num_predict: 40 }, stream: true });
  for await (const part of stream) {
    stream.abort();
    return part.done;
  }
}

tell({
  "chat": () => client.chat({ model, messages, options }),
  "chat streamed": () => all(client.chat({ model, messages, options, stream: true })),
  "chat aborted": aborted,
  "generate": () => client.generate({ model, prompt: "Hello", options }),
  "generate streamed": () => all(client.generate({ model, prompt: "Hello", options, stream: true })),
  // Stock's answer goes on with blanks until it is cut.
  "generate in a format": async () =>
    typeof JSON.parse((await client.generate({ model, prompt: "Hello", format: { type: "boolean" }, options })).response),
  "show": async () => (await client.show({ model })).capabilities,
  "ps": async () => (await client.ps()).models.filter((one) => one.model === model),
  "list": async () => (await client.list()).models.filter((one) => one.model === model),
  "no such model": () => client.chat({ model: "nothing-of-the-kind", messages }),
});
