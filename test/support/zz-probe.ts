import { startSpace } from "./space.ts";
import { sessionsOf, until } from "./sessions.ts";
const space = await startSpace({auth:"open"}); const sessions=sessionsOf(space);
const [alice, carol, dave] = [await sessions.open("s_a"), await sessions.open("s_c"), await sessions.open("s_d")];
const bob = await sessions.open("s_b");
await Promise.all(Array.from({ length: 900 }, (_, n) => alice.send("seam", `a${n}`)));
await Promise.all(Array.from({ length: 900 }, (_, n) => carol.send("seam", `c${n}`)));
let sent = 0;
const posting = (async () => {
  while (sent < 900) {
    await Promise.all(Array.from({ length: 10 }, () => dave.send("seam", `d${(sent += 1)}`)));
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
})();
await until("posts are coming", () => sent > 50);
const joined = await bob.join("seam");
const seqs:number[]=[]; const seen=new Set<string>(); let hist=0;
void (async()=>{ for await (const i of bob.inbox()) { seen.add(i.text); if (i.historical) { hist++; seqs.push(i.receivedSeq!);} } })();
console.log(joined, sent);
console.log(await joined.replayed); await posting; await new Promise(r=>setTimeout(r,1000));
console.log(seen.size, hist, sent, bob.stats(), Math.min(...seqs), Math.max(...seqs), bob.told.map(e=>e.type));
for (const p of ["a","c"]) console.log(p, [...seen].filter(t=>t[0]===p).length); const d=[...seen].filter(t=>t[0]==="d").map(t=>Number(t.slice(1))); const miss=[]; for(let i=1;i<=sent;i++) if(!d.includes(i)) miss.push(i); console.log("missing", miss.length, miss.slice(0,5), miss.at(-1));
await sessions.closeAll(); await space.stop();
