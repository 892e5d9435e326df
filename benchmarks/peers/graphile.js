// Drains what is there with the configuration that graphile-worker documents as its fastest, and prints
// the seconds from the first call of the task to the last.
const { run } = require("graphile-worker");

const [connectionString, expected] = [process.argv[2], Number(process.argv[3])];

async function main() {
  let count = 0;
  let began = 0n;
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  const runner = await run({
    preset: {
      worker: {
        connectionString,
        concurrentJobs: 24,
        maxPoolSize: 25,
        localQueue: { size: 500 },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
    noHandleSignals: true,
    taskList: {
      "order.placed": async () => {
        if (count === 0) began = process.hrtime.bigint();
        count += 1;
        if (count === expected) finish(process.hrtime.bigint());
      },
    },
  });
  const ended = await finished;
  console.log(`seconds ${Number(ended - began) / 1e9}`);
  await runner.stop();
}

main().then(() => process.exit(0));
