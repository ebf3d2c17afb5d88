/**
 * Rows of the two profiles behind the membership feed (§8, supplement F): one looks at the broker, one writes what was
 * seen. Neither may do anything else, so whatever becomes of the feed reaches nothing that decides.
 */
import { inboxGrant, jsApi, kvKey, sys } from "../protocol/base/broker-subjects.ts";
import { FEED_DUTY, bucketStream, leaseKey, spaceNames } from "../protocol/base/names.ts";
import type { HolderScope } from "./client-profiles.ts";
import { Account, type Row, pub, sub } from "./row.ts";

/** Whose subscriptions may be looked at: the front account of one space. */
export type ObserverScope = HolderScope & { readonly frontAccount: string };

const { Store, System } = Account;

const inbox = (account: Account, { holder, inboxNonce }: HolderScope): Row =>
  sub(account, inboxGrant(holder.uid, inboxNonce), "§9 item 1");

/**
 * The membership feed (§8): the bucket itself, the rows that it is made from, and the lease of who writes it. What
 * nothing is decided from is written by who may write nothing else.
 */
export function membershipRwRows(scope: HolderScope): Row[] {
  const { bucket } = spaceNames(scope.space);
  const feed = bucketStream(bucket.membership);
  const leases = bucketStream(bucket.leases);
  return [
    inbox(Store, scope),
    ...[bucket.acl, bucket.members]
      .map(bucketStream)
      .flatMap((stream) => [
        pub(Store, jsApi.messageGet(stream), "§8 feed, the durable half"),
        pub(Store, jsApi.directGet(stream), "§8 feed, the durable half, paged"),
      ]),
    pub(Store, jsApi.streamInfo(feed), "§8 feed, has anybody else written it"),
    pub(Store, jsApi.messageGet(feed), "§8 feed, leader read"),
    pub(Store, jsApi.directGet(feed), "§8 feed, paged"),
    pub(Store, jsApi.messageDelete(feed), "§8 feed, who hears nothing any more"),
    pub(Store, kvKey(bucket.membership, ">"), "§8 feed"),
    pub(Store, jsApi.streamInfo(leases), "H53, the broker's clock"),
    pub(Store, jsApi.messageGet(leases), "H53, the lease of the feed"),
    pub(Store, kvKey(bucket.leases, leaseKey("delivery", FEED_DUTY)), "H53, the lease of the feed"),
  ];
}

/** Sees what the clients of one space have subscribed to (§8), and changes nothing. */
export function membershipObserverRows(scope: ObserverScope): Row[] {
  return [
    inbox(System, scope),
    pub(System, sys.ping("STATSZ"), "§8 feed, which servers there are"),
    pub(System, sys.accountConnections(scope.frontAccount), "§8 feed, who has subscribed to what"),
  ];
}
