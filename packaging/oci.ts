// Container images as the OCI image layout describes them, without a daemon or a registry:
// https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md
import { execFileSync } from 'node:child_process'
import { closeSync, mkdirSync, openSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { sha256, sha256OfFile } from './sums.ts'

export type Layer = {
  /** The root of its files, with the modes that they shall have. All of them are root's. */
  tree: string
  /** What made it, for the history of the image. */
  comment: string
  /** Folders of the tree that this user owns. */
  owned?: { uid: number; folders: readonly string[] }
}

/** The part of the configuration that says how a container is run. */
export type Execution = Readonly<Record<string, unknown>>

export type Image = {
  name: string
  version: string
  layers: readonly Layer[]
  execution: Execution
  /** Since 1970: the time of all files. */
  seconds: number
  /** Compressed quickly, for tests. */
  isQuick: boolean
}

type Descriptor = { mediaType: string; digest: string; size: number }

/** Writes the image to a file that `docker load`, `podman load` and `skopeo copy oci-archive:` read. `folder` is for drafts. */
export function writeImage(image: Image, folder: string, file: string): void {
  const layout = join(folder, 'layout')
  const blobs = join(layout, 'blobs/sha256')
  mkdirSync(blobs, { recursive: true })
  const keep = (draft: string, mediaType: string): Descriptor => {
    const content = readFileSync(draft)
    const sum = sha256(content)
    renameSync(draft, join(blobs, sum))
    return { mediaType, digest: `sha256:${sum}`, size: content.length }
  }
  const keepJson = (value: unknown, mediaType: string): Descriptor => {
    const draft = join(folder, 'draft.json')
    writeFileSync(draft, JSON.stringify(value))
    return keep(draft, mediaType)
  }

  const created = new Date(image.seconds * 1000).toISOString().replace('.000Z', 'Z')
  const layers = image.layers.map((layer, n) => {
    const tar = join(folder, `layer-${n}.tar`)
    pack(layer, tar, image.seconds)
    const diffId = `sha256:${sha256OfFile(tar)}`
    compress(tar, image.isQuick)
    return { diffId, ...keep(`${tar}.gz`, 'application/vnd.oci.image.layer.v1.tar+gzip') }
  })
  const config = keepJson(
    {
      created,
      architecture: 'amd64',
      os: 'linux',
      config: image.execution,
      rootfs: { type: 'layers', diff_ids: layers.map(({ diffId }) => diffId) },
      history: image.layers.map(({ comment }) => ({ created, created_by: comment })),
    },
    'application/vnd.oci.image.config.v1+json',
  )
  const manifestType = 'application/vnd.oci.image.manifest.v1+json'
  const manifest = keepJson(
    {
      schemaVersion: 2,
      mediaType: manifestType,
      config,
      layers: layers.map(({ diffId: _, ...descriptor }) => descriptor),
    },
    manifestType,
  )
  const tag = `${image.name}:${image.version}`
  const annotations = {
    'org.opencontainers.image.ref.name': image.version,
    // What `docker load` calls it.
    'io.containerd.image.name': `docker.io/library/${tag}`,
  }
  const platform = { architecture: 'amd64', os: 'linux' }
  const index = {
    schemaVersion: 2,
    mediaType: 'application/vnd.oci.image.index.v1+json',
    manifests: [{ ...manifest, platform, annotations }],
  }
  const path = ({ digest }: Descriptor): string => `blobs/sha256/${digest.slice('sha256:'.length)}`
  // Docker before 25 reads this instead of index.json.
  const former = [{ Config: path(config), RepoTags: [tag], Layers: layers.map(path) }]
  writeFileSync(join(layout, 'oci-layout'), JSON.stringify({ imageLayoutVersion: '1.0.0' }))
  writeFileSync(join(layout, 'index.json'), JSON.stringify(index))
  writeFileSync(join(layout, 'manifest.json'), JSON.stringify(former))
  pack({ tree: layout, comment: '' }, file, image.seconds, ['--mode=u=rwX,go=rX'])
}

/** The same tree makes the same bytes, whoever builds it when. */
function pack({ tree, owned }: Layer, file: string, seconds: number, options: readonly string[] = []): void {
  const add = (mode: '--create' | '--append', uid: number, names: readonly string[], rest: string[] = []) =>
    execFileSync(
      'tar',
      [
        mode,
        '--file',
        file,
        '--directory',
        tree,
        '--format=gnu',
        '--sort=name',
        '--hard-dereference',
        `--mtime=@${seconds}`,
        '--numeric-owner',
        `--owner=${uid}`,
        `--group=${uid}`,
        ...options,
        ...rest,
        ...names,
      ],
      { env: { ...process.env, LC_ALL: 'C' }, stdio: ['ignore', 'ignore', 'inherit'] },
    )
  const folders = owned?.folders ?? []
  add(
    '--create',
    0,
    readdirSync(tree).sort(),
    folders.map((one) => `--exclude=${one}`),
  )
  if (owned && folders.length > 0) add('--append', owned.uid, folders)
}

/** Not zlib of Node: what it makes differs with the processor. */
function compress(tar: string, isQuick: boolean): void {
  const out = openSync(`${tar}.gz`, 'w')
  try {
    execFileSync('gzip', ['--no-name', isQuick ? '-1' : '-9', '--stdout', tar], {
      stdio: ['ignore', out, 'inherit'],
    })
  } finally {
    closeSync(out)
  }
}
