import { Problem } from '../../core/errors.ts'
import { type HandlersOf, inSteps } from '../../handler.ts'
import type { Db } from '../../storage/open.ts'
import type { AgentBuildRow, AgentReleaseRow } from '../../storage/schema/agent-tables.ts'
import type { ReleaseFiles } from '../downloads/ports.ts'
import type * as contract from './contract.ts'
import { type Manifest, ManifestError, type TrustKey, verifyManifest } from './manifest.ts'
import type { ReleaseSource } from './ports.ts'
import { promote, promoteRegistered } from './promotion.ts'
import { rollBack } from './rollback.ts'
import {
  buildLabel,
  checkMatchesManifest,
  checkUnchanged,
  promotionSummary,
  type ReleaseRegistration,
  toAgentRelease,
} from './rules.ts'
import * as store from './store.ts'
import { readRelease } from './sync.ts'

const labelsOffered = async (db: Db, version: string): Promise<string[]> =>
  (await store.buildsOf(db, version))
    .filter((build) => build.promoted_at !== null)
    .map(buildLabel)
    .sort()

type Versions = typeof contract.agentVersions

type On = {
  releases: ReleaseSource | undefined
  /** Configured by the operator; keys named in earlier manifests (`nextKeys`) are not included. */
  trustKeys: readonly TrustKey[]
  binaries: ReleaseFiles
  publicUrl: () => string
}

export function agentVersionHandlers({ releases, trustKeys, binaries, publicUrl }: On): HandlersOf<Versions> {
  function addressOf(build: AgentBuildRow): string {
    if (!binaries.isLocal && build.url === '') throw new Problem('not_found', 'Binary not found')
    if (!binaries.isLocal) return build.url
    return `${publicUrl()}/api/v1/agents/download/${buildLabel(build).replace(':', '/')}?version=${build.version}`
  }

  /** Verifies the stored manifest again, with the present keys. @throws release_untrusted */
  function read(release: AgentReleaseRow, build: AgentBuildRow): { manifest: Manifest; keyId: string } {
    try {
      const found = verifyManifest(release.manifest, release.manifest_signature, trustKeys)
      checkMatchesManifest(found.manifest, build)
      return found
    } catch (error) {
      if (!(error instanceof ManifestError)) throw error
      throw new Problem('release_untrusted', undefined, { details: { reason: error.reason } })
    }
  }

  return {
    list: ({ db, query }) => store.listReleases(db, query),

    async show({ db, params: { version } }) {
      return toAgentRelease(await store.getRelease(db, version), await store.buildsOf(db, version))
    },

    async latest({ db, query: { platform, arch: architecture, component } }) {
      const build = await store.findBuild(db, { platform, architecture, component }, undefined)
      if (!build) {
        throw new Problem('not_found', 'No version found for the specified platform and architecture')
      }
      const release = await store.getRelease(db, build.version)
      return {
        version: build.version,
        downloadUrl: addressOf(build),
        checksum: build.checksum,
        fileSize: build.size,
        releaseManifest: release.manifest,
        manifestSignature: release.manifest_signature,
        signingKeyId: release.signing_key_id,
        releaseNotes: release.notes,
      }
    },

    async info({ db, params: { version }, query: { platform, arch: architecture, component } }) {
      const release = await store.getRelease(db, version)
      const build = await store.findBuild(db, { platform, architecture, component }, version)
      if (!build)
        throw new Problem('not_found', `${version} has no ${component} for ${platform}/${architecture}`)
      const { keyId } = read(release, build)
      const { checksum, size } = build
      const { manifest, manifest_signature: manifestSignature } = release
      return {
        version,
        url: addressOf(build),
        checksum,
        size,
        manifest,
        manifestSignature,
        signingKeyId: keyId,
      }
    },

    sync: inSteps<Versions['sync'], ReleaseRegistration>({
      prepare: ({ query }) => readRelease(releases, trustKeys, query.version),
      async run({ db, query, now, note }, registration) {
        const { version, tag } = registration.release
        await store.lockReleases(db)
        const known = await store.findRelease(db, version)
        if (known) checkUnchanged(known, registration)
        if (known) await store.changeRelease(db, registration, now)
        else await store.insertRelease(db, registration, now)
        await store.saveBuilds(db, registration)
        const synced = registration.builds.map(({ label }) => label).sort()
        note({ resourceId: version, resourceName: tag, details: { synced, known: known !== undefined } })
        if (!query.promote)
          return { version, synced, promoted: await labelsOffered(db, version), withheld: null }
        const promotion = await promoteRegistered(db, { version, isKnown: known !== undefined }, now)
        note(promotionSummary(promotion).change)
        const { withheld } = promotion
        return { version, synced, promoted: await labelsOffered(db, version), withheld }
      },
    }),

    async promote({ db, body, now, note }) {
      const { change, promoted, demoted } = promotionSummary(await promote(db, body, now))
      note({ resourceId: body.version, resourceName: body.version, ...change })
      return { promoted, demoted }
    },

    async rollback({ db, caller, body, now, note }) {
      const { promotion, ended } = await rollBack(db, body, { by: caller.email, now })
      const { change, promoted, demoted } = promotionSummary(promotion)
      const endedRollout = ended?.id ?? null
      note({ resourceId: body.version, resourceName: body.version, ...change, details: { endedRollout } })
      return { promoted, demoted, endedRollout }
    },

    async remove({ db, params: { version }, note }) {
      await store.lockReleases(db)
      const release = await store.getRelease(db, version)
      const builds = await store.buildsOf(db, version)
      const { promotedFor, signingKeyId } = toAgentRelease(release, builds)
      const rollout = await store.findCurrentRollout(db)
      if (promotedFor.length > 0) {
        throw new Problem('release_in_use', `${version} is offered: promote another version first`, {
          details: { promotedFor },
        })
      }
      if (rollout?.version === version) {
        throw new Problem(
          'release_in_use',
          `A rollout of ${version} determines what its devices are offered`,
          {
            details: { rolloutId: rollout.id },
          },
        )
      }
      await store.removeRelease(db, version)
      const before = { tag: release.tag, signingKeyId, builds: builds.map(buildLabel).sort() }
      note({ resourceId: version, resourceName: release.tag, before })
      return { success: true }
    },
  }
}
