import type { PackageName } from './trees.ts'

/** What is the same in all packages of a build. */
export type Made = {
  /** In the form of packages: `0.2.0~rc.1`. */
  version: string
  maintainer: string
  /** Since 1970: the time of all files. */
  seconds: number
  /** Uncompressed, for tests. */
  isQuick: boolean
}

/** In lines of at most 78 characters. */
export const about: Record<PackageName, { summary: string; text: string[] }> = {
  svc: {
    summary: 'multi-tenant device management service and its command line',
    text: [
      'The service keeps partners, their customers and the devices of these, and',
      'records each change in an audit log that can be verified. It runs on SQLite',
      'or on Postgres. The same program is the client of its API.',
    ],
  },
  'svc-agent': {
    summary: 'agent of the svc device management service',
    text: [
      'Reports the inventory and the state of this machine to a service, and runs',
      'the scripts that the service sends. "svc-agent install" makes it a service',
      'of systemd; the agent then updates itself.',
    ],
  },
}
