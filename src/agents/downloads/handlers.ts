import { type Fault, invalid, Problem } from '../../core/errors.ts'
import type { FileReply, HandlersOf } from '../../handler.ts'
import type { Db } from '../../storage/open.ts'
import {
  architectureNames,
  architectureOf,
  type Build,
  type Component,
  components,
  platformNames,
  platformOf,
} from '../versions/manifest.ts'
import { findBuild } from '../versions/store.ts'
import type * as contract from './contract.ts'
import type { ReleaseFiles } from './ports.ts'

type Asked = { component: string; os: string; arch: string }

export function agentDownloadHandlers(binaries: ReleaseFiles): HandlersOf<typeof contract.agentDownloads> {
  async function fileFor(db: Db, asked: Asked, version: string | undefined): Promise<FileReply> {
    const build = await findBuild(db, kindOf(asked), version)
    const file = build && (await binaries.find(build))
    if (file) return file
    const { component, os, arch } = asked
    const what = `${version ?? 'The offered version'} has no ${component} for ${os}/${arch}`
    throw new Problem('not_found', 'Binary not found', { details: { message: what } })
  }
  return {
    agent: ({ db, params, query }) => fileFor(db, { component: 'agent', ...params }, query.version),
    component: ({ db, params, query }) => fileFor(db, params, query.version),
  }
}

/** @throws invalid_request; its message is that of the first fault */
function kindOf({ component, os, arch }: Asked): Build {
  const [platform, architecture] = [platformOf(os), architectureOf(arch)]
  const isComponent = (components as readonly string[]).includes(component)
  const wrong = [
    isComponent ? undefined : faultAt('component', 'Invalid component', components),
    platform ? undefined : faultAt('os', 'Invalid OS', platformNames),
    architecture ? undefined : faultAt('arch', 'Invalid architecture', architectureNames),
  ].filter((one) => one !== undefined)
  if (platform && architecture && isComponent) {
    return { component: component as Component, platform, architecture }
  }
  throw invalid(
    wrong.map(({ fault }) => fault),
    wrong[0]?.message,
  )
}

const faultAt = (
  param: string,
  message: string,
  known: readonly string[],
): { message: string; fault: Fault } => ({
  message,
  fault: { path: `params.${param}`, message: `must be one of ${known.join(', ')}` },
})
