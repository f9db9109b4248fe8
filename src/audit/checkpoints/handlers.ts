import { invalid, Problem } from '../../core/errors.ts'
import { ofOne, type Scope, systemScope } from '../../core/scope.ts'
import { type HandlersOf, inSteps } from '../../handler.ts'
import type { Db } from '../../storage/open.ts'
import { checkOrgAndNote, requestedChain } from '../handlers.ts'
import { findAnchor } from '../retention/anchors.ts'
import { chainOf, orgOfChain } from '../rules.ts'
import { entriesIn } from '../store.ts'
import { checkpointOrigin, keyIdOf } from './checkpoint.ts'
import type { AuditCheckpoint, AuditKeys, AuditProof, auditCheckpoints } from './contract.ts'
import { type CheckpointDependencies, type TakenCheckpoint, takeCheckpoint } from './jobs.ts'
import { consistencySpans, inclusionSpans, leafHash, type Span, spanHash } from './merkle-tree.ts'
import { verifierText } from './signed-note.ts'
import { firstLeafOf, MissingTileError, nodeReader } from './store.ts'

type Group = typeof auditCheckpoints

export const auditCheckpointHandlers = (deps: CheckpointDependencies): HandlersOf<Group> => ({
  checkpoint: inSteps<Group['checkpoint'], AuditCheckpoint>({
    prepare: async ({ query, ...call }) => {
      await checkOrgAndNote(call, query.orgId)
      return toAuditCheckpoint(deps, await takeCheckpoint(deps, requestedChain(call.scope, query.orgId)))
    },
    run: async (_, taken) => taken,
  }),

  proof: inSteps<Group['proof'], AuditProof>({
    prepare: async ({ query: { id, since, orgId }, ...call }) => {
      if ((id === undefined) === (since === undefined)) {
        throw invalid([{ path: 'query', message: 'needs either id or since' }])
      }
      await checkOrgAndNote(call, orgId)
      if (id !== undefined) {
        const place = await getEntryPosition(deps.storage.read, call.scope, id, orgId)
        call.note({ orgId: orgOfChain(place.chain), resourceId: id })
        return inclusionProof(deps, place)
      }
      return consistencyProof(deps, requestedChain(call.scope, orgId), since!)
    },
    run: async (_, proof) => proof,
  }),

  key: async ({ query: { orgId }, ...call }): Promise<AuditKeys> => {
    await checkOrgAndNote(call, orgId)
    const origin = checkpointOrigin(orgOfChain(requestedChain(call.scope, orgId)))
    const [current, ...former] = (await deps.signer.trusted()).map((publicKey) => ({
      publicKey: publicKey.toString('base64'),
      verifier: verifierText({ name: origin, publicKey }),
    }))
    return { current: current!, former, successions: await deps.signer.successions() }
  },
})

function toAuditCheckpoint(
  { signer }: CheckpointDependencies,
  { note, checkpoint }: TakenCheckpoint,
): AuditCheckpoint {
  const { orgId, head, root, time } = checkpoint
  const keyId = keyIdOf(signer.publicKeys[0]!, orgId)
  return { checkpoint: note, orgId, ...head, root: root.toString('base64'), time, keyId }
}

type EntryPosition = { chain: string; seq: number; canonical: string }

/** @throws not_found, also for an entry outside the scope or of another organization than the one named */
async function getEntryPosition(
  db: Db,
  scope: Scope,
  id: string,
  orgId: string | undefined,
): Promise<EntryPosition> {
  const place = await entriesIn(db, ofOne(scope))
    .select(['chain', 'seq', 'canonical'])
    .where('id', '=', id)
    .$if(orgId !== undefined, (it) => it.where('chain', '=', chainOf(orgId!)))
    .executeTakeFirst()
  if (!place) throw new Problem('not_found', 'Audit log not found')
  return place
}

async function inclusionProof(
  deps: CheckpointDependencies,
  { chain, seq, canonical }: EntryPosition,
): Promise<AuditProof> {
  const { note, checkpoint } = await takeCheckpoint(deps, chain)
  const [index, size] = [seq - 1, checkpoint.head.seq]
  const path = await proofPath(deps, chain, inclusionSpans(index, size))
  const leaf = leafHash(canonical).toString('base64')
  return { checkpoint: note, path, index, size, leaf, entry: canonical }
}

async function consistencyProof(
  deps: CheckpointDependencies,
  chain: string,
  since: number,
): Promise<AuditProof> {
  const { note, checkpoint } = await takeCheckpoint(deps, chain)
  const to = checkpoint.head.seq
  if (since > to) throw invalid([{ path: 'query.since', message: `the chain has only ${to} entries` }])
  const first = await firstLeafOf(deps.storage.read, chain)
  // Further on, missing tiles are not the work of retention.
  const { head: removed } = await findAnchor(deps.storage.read, systemScope, chain)
  if (since <= first && first <= removed.seq) {
    const message = `retention has removed what proves growth since ${first} entries or fewer: compare with a later checkpoint`
    throw invalid([{ path: 'query.since', message }])
  }
  const path = await proofPath(deps, chain, consistencySpans(since, to))
  return { checkpoint: note, path, from: since, to }
}

async function proofPath(
  { storage }: CheckpointDependencies,
  chain: string,
  spans: Span[],
): Promise<string[]> {
  const read = nodeReader(storage.read, chain)
  const path: string[] = []
  try {
    for (const span of spans) path.push((await spanHash(read, span)).toString('base64'))
  } catch (error) {
    if (!(error instanceof MissingTileError)) throw error
    throw new Problem('audit_history_changed', error.message)
  }
  return path
}
