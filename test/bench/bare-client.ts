/** A process with one nats.js connection and nothing else: what the memory of a daemon is compared with. */
import { connect } from "@nats-io/transport-node";

const nc = await connect({ servers: process.argv[2] ?? "" });
process.on("disconnect", () => void nc.close());
process.send?.("up");
