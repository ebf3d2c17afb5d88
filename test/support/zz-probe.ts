import { startSpace } from "./space.ts";
import { connect } from "../../shared/client/index.ts";
const s = await startSpace({auth:"static"});
const N=30000;
const mint=(actor:string)=>s.mint({actor, owner:"acme", subscribe:["general"], publish:["general"]});
const al=await mint("alice"); const bo=await mint("bob"), bo2=await mint("bob2");
const open=(m:any,limits:any={})=>connect({servers:[s.url], space:"main", credentials:{kind:"static",text:m.text}, limits});
const alice=await open(al);
async function fill(id:string){ let left=N; await Promise.all(Array.from({length:256},async()=>{while(left-->0) await alice.dm(id,"x".repeat(20));})); }
const idOf=(m:any)=>`${m.view.principal.owner}.${m.view.principal.actor}`;
for (const limits of [{}, {pulls:64, held:128}, {pulls:32, held:128},{pulls:16}]) {
  await fill(idOf(bo));
  const bob=await open(bo,limits); let got=0; const it=bob.inbox(); const t=performance.now(); while(got<N){ await it.next(); got++; } const ms=performance.now()-t; console.log("sdk", JSON.stringify(limits), Math.round(N/ms*1000)); await it.return!(); await bob.drain();
  // bare
  await fill(idOf(bo2));
  const { nc } = await s.open(bo2); const subj=`$JS.API.CONSUMER.MSG.NEXT.DM_main.dm_${idOf(bo2).replace(".","-")}-${bo2.view.uid}`; const pre=`_INBOX_${bo2.view.connId}.b.`; let g=0; const t2=performance.now();
  const body=JSON.stringify({batch:1,expires:2e9});
  await new Promise<void>(res=>{ const sub=nc.subscribe(pre+"*",{callback:(e,m)=>{ if(m.headers?.code) return; m.respond("+ACK"); g++; if(g>=N){ sub.unsubscribe(); res(); return;} nc.publish(subj,body,{reply:pre+g}); }}); for(let i=0;i<64;i++) nc.publish(subj,body,{reply:pre+"s"+i}); });
  console.log("bare 64", Math.round(N/(performance.now()-t2)*1000));
  await new Promise(r=>setTimeout(r,2500));
}
await alice.close(); await s.stop(); process.exit(0);
