import { takeCheckpoint } from '../../src/audit/checkpoints/jobs.ts'
import { localCopiesIn } from '../../src/audit/checkpoints/local-copies.ts'
import { createSigner } from '../../src/audit/checkpoints/signer.ts'
import { recordAudit } from '../../src/audit/outbox.ts'
import { toDraftEntry } from '../../src/audit/rules.ts'
import { openStorage } from '../../src/storage/open.ts'
import { happening } from './rows.ts'

/* Writes entries and signs them until it is killed. */

export type Life = {
  dataDir: string
  databaseUrl: string | undefined
  orgId: string
  /** Kills itself at this point, after a checkpoint is in the database. */
  ends?: 'before the file' | 'after the file'
}

const { dataDir, databaseUrl, orgId, ends }: Life = JSON.parse(process.argv[2]!)
const storage = await openStorage({ dataDir, databaseUrl })
const kept = localCopiesIn(`${dataDir}/checkpoints`)
const parts = {
  storage,
  signer: createSigner(storage, {
    current: Buffer.alloc(32, 'a'),
    previous: undefined,
    isPreviousAssumed: false,
  }),
  localCopies: {
    ...kept,
    async write(chain: string, note: string) {
      if (ends === 'before the file') process.kill(process.pid, 'SIGKILL')
      await kept.write(chain, note)
      if (ends === 'after the file') process.kill(process.pid, 'SIGKILL')
    },
  },
  clock: () => new Date().toISOString(),
  onRefusal: () => {},
}
for (let n = 0; n < 10_000; n += 1) {
  await storage.write(async (tx) => {
    for (let more = 0; more < 3; more += 1)
      await recordAudit(tx, toDraftEntry(happening(orgId), parts.clock()))
  })
  const { checkpoint } = await takeCheckpoint(parts, orgId)
  process.stdout.write(`${checkpoint.head.seq}\n`)
}
