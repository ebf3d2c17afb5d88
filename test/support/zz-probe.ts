import { startSpace } from "./space.ts";
import { connect } from "../../shared/client/index.ts";
for (const auth of ["open","static"] as const) {
  const t0=performance.now();
  const s = await startSpace({auth});
  console.log(auth, "space up", performance.now()-t0);
  const cred = async (actor:string)=> auth==="open"? {kind:"open" as const, actor, uid: "abcdefghijklmnopqrstuvwxyz"} : {kind:"static" as const, text:(await s.mint({actor, owner:"acme", subscribe:["general"], publish:["general"]})).text};
  const bobc = await cred("bob"), alicec = await cred("alice");
  const open=(c:any)=>connect({servers:[s.url], space:"main", credentials:c, onEvent:(e)=> e.type!=="up" && console.log(JSON.stringify(e).slice(0,300))});
  const alice=await open(alicec); 
  for (const how of ["close","kill"]) {
    const bob=await open(bobc); await bob.listen(); const it=bob.inbox();
    await alice.dm(bob.me.id,"one"); const one=await it.next(); (one.value as any).ack(); await new Promise(r=>setTimeout(r,300));
    if (how==="close") await bob.close(); else { await bob.close(); }
    console.log(how, "closed", bob.stats());
    await alice.dm(bob.me.id,"two");
    const bob2=await open(bobc); const t=performance.now(); const i2=bob2.inbox();
    const got=await Promise.race([i2.next(), new Promise(r=>setTimeout(()=>r("nothing"),8000))]) as any;
    console.log("second session got", got.value?.text ?? got, performance.now()-t, bob2.inboxState()); got.value?.ack(); await bob2.drain();
  }
  await alice.close(); await s.stop();
}
