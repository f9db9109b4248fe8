import { z } from 'zod'
import { Command } from '../live/wire/contract.ts'

/*
 * Replies of the service, parsed leniently: the service may be older or newer than this agent, and no reply is a
 * reason to stop.
 */

const listOf = <T extends z.ZodType>(item: T) =>
  z
    .array(item.nullable().catch(null))
    .catch([])
    .default([])
    .transform((list) => list.filter((one) => one !== null))

const interval = z.number().min(1).max(86_400).optional().catch(undefined)

export const TrustKeys = listOf(
  z.object({ publicKeyB64: z.string(), validFrom: z.string().nullable().default(null).catch(null) }),
)

export const HeartbeatReply = z.object({
  commands: listOf(Command),
  configUpdate: z
    .object({ heartbeatIntervalSeconds: interval, autoUpdate: z.boolean().optional().catch(undefined) })
    .nullable()
    .catch(null)
    .default(null),
  upgradeTo: z.string().nullable().catch(null).default(null),
  /** Whether the version may be older than the running one. */
  rollback: z.boolean().catch(false).default(false),
  rotateToken: z.boolean().catch(false).default(false),
  confirmTokenRotation: z.boolean().catch(false).default(false),
  manifestTrustKeys: TrustKeys,
})
export type HeartbeatReply = z.output<typeof HeartbeatReply>

export const StagedTokens = z.object({
  authToken: z.string().min(1),
  watchdogAuthToken: z.string().min(1).optional(),
})

/** Where a version can be downloaded, with its signed manifest. */
export const DownloadInfo = z.object({
  version: z.string(),
  url: z.string(),
  checksum: z.string(),
  size: z.number(),
  manifest: z.string(),
  manifestSignature: z.string(),
})
export type DownloadInfo = z.output<typeof DownloadInfo>
