import { test } from "vitest";
import { NO_LIMITS, WITH_JETSTREAM, privateServices, startBareOperator } from "/work/main/test/support/bare-operator.ts";
import { tap } from "/work/main/test/support/probe.ts";
import { api, makeDurable, makeStream, put } from "/work/main/test/support/raw-jetstream.ts";
const NEXT = "$JS.API.CONSUMER.MSG.NEXT.BOX";
const sleep=(ms:number)=>new Promise(r=>setTimeout(r,ms));
test("x", async () => {
  const broker = await startBareOperator(async (keys) => {
      let { exports, imports } = await privateServices(keys.get("STORE")!, keys.get("FRONT")!, ["chat.>", "$KV.presence.>", `${NEXT}.*`, "$JS.ACK.BOX.>"]);
      exports = exports.map(e=> e.subject.includes("NEXT") ? {...e, response_threshold: 3e9} : e);
      return { STORE: { limits: WITH_JETSTREAM, exports }, FRONT: { limits: NO_LIMITS, imports } };
  }, ["STORE","FRONT"]);
  const store = await broker.login(await broker.user("STORE"));
  const front = await broker.login(await broker.user("FRONT"));
  await makeStream(store, "BOX", { subjects: ["box.>"] });
  for (const [n, body] of [["none",""],["long",'{"batch":1,"expires":30000000000}']] as const) {
    await makeDurable(store, "BOX", n, { max_batch: 1, max_expires: 30e9, filter_subject: "box."+n });
    const leaver = await broker.login(await broker.user("FRONT"));
    const l = await tap(front, "live."+n);
    leaver.publish(`${NEXT}.${n}`, body, {reply:"live."+n});
    const info = async()=>{const i=await api(store,"CONSUMER.INFO.BOX."+n); return [i.num_waiting,i.num_ack_pending,i.num_pending]};
    await sleep(100); console.log(n, await info()); await leaver.close(); 
    for (let k=0;k<8;k++){ await sleep(1000); console.log(k+1, await info()); }
    await put(store,"box."+n,"x"); await sleep(200);
    console.log(n, await info(), l.messages.map(m=>[m.headers?.code,m.string()]));
  }
  await broker.end();
}, 60000);
