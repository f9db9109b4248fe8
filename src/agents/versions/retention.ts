import { recordDeletions } from '../../audit/deletions.ts'
import type { Instant } from '../../core/time.ts'
import { forEachSettled } from '../../storage/bisect-writes.ts'
import type { Storage } from '../../storage/open.ts'
import { listUnneeded } from './rules.ts'
import { lockReleases, removeRelease } from './store.ts'

/**
 * Deletes releases that were last registered before a time and that nothing needs: no machine is offered, runs or gets them, no
 * rollout is of them, and no later release has to be reached through them.
 */
export async function deleteUnneededReleases(storage: Storage, before: Instant, now: Instant): Promise<void> {
  const { heavy } = storage
  const releases = await heavy.selectFrom('agent_releases').selectAll().execute()
  const due = listUnneeded(releases, before)
  if (due.length === 0) return
  const used = new Set(
    (
      await heavy
        .selectFrom('devices')
        .select(['agent_version', 'watchdog_version', 'update_version'])
        .distinct()
        .execute()
    ).flatMap((row) => Object.values(row)),
  )
  await forEachSettled(due, ({ version, tag }) =>
    storage.write(async (tx) => {
      if (used.has(version)) return
      await lockReleases(tx)
      const { promoted, rollouts } = await tx
        .selectNoFrom(({ selectFrom, fn }) => [
          selectFrom('agent_builds')
            .select(fn.countAll<number>().as('count'))
            .where('version', '=', version)
            .where('promoted_at', 'is not', null)
            .as('promoted'),
          selectFrom('agent_rollouts')
            .select(fn.countAll<number>().as('count'))
            .where('version', '=', version)
            .as('rollouts'),
        ])
        .executeTakeFirstOrThrow()
      if (Number(promoted) + Number(rollouts) > 0) return
      // Otherwise another process did it, and has recorded it.
      if (await removeRelease(tx, version))
        await recordDeletions(tx, 'agent_version', [{ id: version, org_id: null, name: tag }], now)
    }),
  )
}
