/** How full the space's share of the disk is: a full one refuses every message (§8). */
import { apiRequest, asObject } from "../../../shared/broker/api.ts";
import { jsApi } from "../../../shared/protocol/base/broker-subjects.ts";
import type { Finding } from "../../../shared/protocol/endpoint/provisioner-shapes.ts";
import type { SpaceContext } from "../context.ts";
import { error, warning } from "./finding.ts";

const FULL = 0.95;
const FILLING = 0.8;

export async function disk({ store, space }: SpaceContext): Promise<Finding[]> {
  const info = await apiRequest(store, jsApi.info, "look at the account");
  const used = Number(info["storage"] ?? 0);
  const most = Number(asObject(info["limits"])?.["max_storage"] ?? -1);
  if (most <= 0 || used < most * FILLING) return [];
  const say = used < most * FULL ? warning : error;
  return [
    say(
      "disk",
      `the space uses ${Math.floor((used / most) * 100)} % of the ${most} bytes that it may`,
      `keep less history (cotal limits set), or give it more: the trust program's space command, --space ${space} --disk-bytes N`,
    ),
  ];
}
