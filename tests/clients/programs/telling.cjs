// What every program here does, as telling.py has it: PROGRAM URL MODEL [MODEL ...] as well.
const { execFileSync } = require("child_process");

const [url, model] = process.argv.slice(2);

async function outcome(made) {
  try {
    return await made();
  } catch (error) {
    const status = error.status_code ?? error.status;
    if (status === undefined) throw error; // no answer of the server's: the case itself is wrong
    return { raised: error.constructor.name, status, sentence: String(error.message) };
  }
}

async function tell(cases) {
  const told = {};
  for (const [name, made] of Object.entries(cases)) told[name] = await outcome(made);
  console.log(JSON.stringify(told));
}

async function all(stream) {
  const parts = [];
  for await (const part of await stream) parts.push(part);
  return parts;
}

module.exports = { url, model, tell, all };

if (require.main === module) {
  const [program, url, ...models] = process.argv.slice(2);
  for (const model of models) execFileSync(process.execPath, [program, url, model], { stdio: "inherit" });
}
