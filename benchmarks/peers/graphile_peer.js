// graphile-worker with the configuration that it documents as its fastest: 24 jobs at a time, a local
// queue of 500, completion in batches. The commands are those of contest.py.
const { run, makeWorkerUtils, Logger } = require("graphile-worker");

const PORTION = 10000;
const connectionString = process.env.BENCH_DSN;
const payload = JSON.parse(process.env.BENCH_PAYLOAD);
const logger = new Logger(() => () => {});
// The same clock as Python's time.monotonic on Linux.
const now = () => Number(process.hrtime.bigint()) / 1e9;
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function utilities(use) {
  const utils = await makeWorkerUtils({ connectionString, logger });
  await use(utils);
}

async function prepare() {
  await utilities(async (utils) => {
    await utils.migrate();
    await utils.withPgClient((client) => client.query("DELETE FROM graphile_worker._private_jobs"));
  });
}

async function fill(count) {
  await utilities(async (utils) => {
    for (let start = 0; start < count; start += PORTION) {
      const length = Math.min(PORTION, count - start);
      await utils.addJobs(Array.from({ length }, () => ({ identifier: "order", payload })));
    }
  });
}

async function work(expected, noting) {
  const began = {};
  let seen = 0;
  let first = 0;
  let finish;
  const finished = new Promise((resolve) => (finish = resolve));
  const quick = { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
  const runner = await run({
    preset: {
      worker: {
        connectionString,
        logger,
        concurrentJobs: noting ? 10 : 24,
        maxPoolSize: 25,
        ...(noting ? {} : quick),
      },
    },
    noHandleSignals: true,
    taskList: {
      order: async (given) => {
        const number = given.order_id;
        seen += 1;
        if (noting) began[number] = now();
        else if (seen === 1) first = now();
        if (seen === expected) finish(now());
      },
    },
  });
  if (noting) {
    await pause(1500); // it does not say when it listens
    console.log("ready");
  }
  const last = await finished;
  console.log(JSON.stringify(noting ? began : last - first));
  await pause(300);
  await runner.stop();
}

async function send(count) {
  const committed = {};
  await utilities(async (utils) => {
    for (let number = 0; number < count; number += 1) {
      await pause(20 + 40 * Math.random());
      await utils.addJob("order", { ...payload, order_id: number });
      committed[number] = now();
    }
  });
  console.log(JSON.stringify(committed));
}

const commands = {
  prepare,
  fill,
  send,
  drain: (count) => work(count, false),
  handle: (count) => work(count, true),
};
const [command, count] = process.argv.slice(2);
commands[command](Number(count)).then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
