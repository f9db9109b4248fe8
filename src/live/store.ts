import type { Instant } from '../core/time.ts'
import type { Db } from '../storage/open.ts'
import { prepared } from '../storage/query/prepared.ts'
import type { LiveQuestionRow } from '../storage/schema/tables.ts'

/* Communication between processes of the service: the caller's permissions were checked before. */

export type AgentLink = { deviceId: string; linkId: string; holder: string }

/** Records the process that now has the agent's connection; returns the previous one, if any. */
export async function moveLink(
  db: Db,
  { deviceId, linkId, holder }: AgentLink,
  now: Instant,
): Promise<AgentLink | undefined> {
  const before = await findLink(db, deviceId)
  const row = { link_id: linkId, holder, created_at: now }
  await db
    .insertInto('agent_links')
    .values({ device_id: deviceId, ...row })
    .onConflict((conflict) => conflict.column('device_id').doUpdateSet(row))
    .execute()
  return before
}

const linkByDevice = prepared((db, p: { deviceId: string }) =>
  db.selectFrom('agent_links').select(['link_id', 'holder']).where('device_id', '=', p.deviceId),
)

export async function findLink(db: Db, deviceId: string): Promise<AgentLink | undefined> {
  const [row] = await linkByDevice(db, { deviceId })
  return row && { deviceId, linkId: row.link_id, holder: row.holder }
}

/** Deletes the row of this connection, not of a newer one. */
export async function dropLink(db: Db, { deviceId, linkId }: Omit<AgentLink, 'holder'>): Promise<void> {
  await db.deleteFrom('agent_links').where('device_id', '=', deviceId).where('link_id', '=', linkId).execute()
}

/** Deletes the rows of a process that has ended or is about to. */
export async function dropLinksOf(db: Db, holder: string): Promise<void> {
  await db.deleteFrom('agent_links').where('holder', '=', holder).execute()
}

export async function insertQuestion(db: Db, row: Omit<LiveQuestionRow, 'outcome'>): Promise<void> {
  await db
    .insertInto('live_questions')
    .values({ ...row, outcome: null })
    .execute()
}

export const findQuestion = (db: Db, id: string): Promise<LiveQuestionRow | undefined> =>
  db.selectFrom('live_questions').selectAll().where('id', '=', id).executeTakeFirst()

/** Unanswered questions to a process. */
export async function listQuestionsTo(db: Db, holder: string): Promise<string[]> {
  const open = db.selectFrom('live_questions').select('id').where('holder', '=', holder)
  return (await open.where('outcome', 'is', null).execute()).map(({ id }) => id)
}

/** False when the caller no longer waits. */
export async function answerQuestion(db: Db, id: string, outcome: string): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('live_questions')
    .set({ outcome })
    .where('id', '=', id)
    .executeTakeFirstOrThrow()
  return numUpdatedRows > 0n
}

/** Deletes a question and returns its outcome, if it has one. */
export async function takeQuestion(db: Db, id: string): Promise<string | null> {
  const taken = await db
    .deleteFrom('live_questions')
    .where('id', '=', id)
    .returning('outcome')
    .executeTakeFirst()
  return taken?.outcome ?? null
}

/** Deletes questions left by a dead process. */
export async function sweepQuestions(db: Db, before: Instant): Promise<void> {
  await db.deleteFrom('live_questions').where('created_at', '<', before).execute()
}
