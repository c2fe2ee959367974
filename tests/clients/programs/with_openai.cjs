// npm's package `openai`.
const OpenAI = require("openai");
const { url, model, tell, all } = require("./telling.cjs");

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "What is the capital of France?" }];
const few = { model, messages, max_tokens: 3, temperature: 0 };
const schema = { type: "object", properties: { known: { type: "boolean" } }, required: ["known"] };

tell({
  "chat": () => client.chat.completions.create(few),
  "chat streamed": () => all(client.chat.completions.create({ ...few, stream: true, stream_options: { include_usage: true } })),
  "chat in a format": async () => {
    const told = await client.chat.completions.create({
      ...few,
      max_tokens: 16,
      response_format: { type: "json_schema", json_schema: { name: "known", schema } },
    });
    return told.choices[0].message.content.replace(/\s/g, "").slice(0, 9); // stock writes blanks as it likes
  },
  "completion": () => client.completions.create({ model, prompt: "Hello", max_tokens: 3, temperature: 0 }),
  "response": () => client.responses.create({ model, input: "Hello", max_output_tokens: 3, temperature: 0 }),
  "response streamed": () =>
    all(client.responses.create({ model, input: "Hello", max_output_tokens: 3, temperature: 0, stream: true })),
  "model": () => client.models.retrieve(model),
  "no such model": () => client.chat.completions.create({ ...few, model: "nothing-of-the-kind" }),
});
